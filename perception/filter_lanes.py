"""The filter of `filter.py` for many flights at once: predict, foresee the image, gate, Joseph update, without a branch; compiled.

Thousands of filters run the same arithmetic, so that a processor can do four or eight of them with one instruction, if the
numbers of one kind lie side by side. They do in a *block*: a flat array of ROWS * LANES numbers in which number `row` of filter
`lane` is at row * LANES + lane. The loop over lanes is plain arithmetic on scalars and tuples with fixed indices, all within one
array with offsets known when it is compiled: only then does the compiler see that the lanes are independent. What a filter should
not take is computed too and then not chosen. A measurement's numbers have independent noise and are taken one after the other,
which gives the same state, covariance and NIS as all at once.
"""

import numpy as np
from numba import njit

from perception.filter import _NEAR, _SLOW
from perception.flight import GRAVITY

LANES = 32  # filters in a block: its rows stay in the nearest cache (22 KiB)
STATE, COVARIANCE, DT, ACCELERATION, MEASUREMENT, ROTATION, TRANSLATION, FOLLOWED, SEEN, NIS = 0, 8, 44, 45, 46, 50, 59, 62, 63, 64  # first rows
ROWS = 65
_inlined = njit(forceinline=True, error_model="numpy", fastmath={"contract"})  # no branch for a division by zero
_compiled = njit(cache=True, error_model="numpy", fastmath={"contract"})


@_inlined
def _slope(v, k, s):
    """Acceleration of flight (3,) and its derivatives by velocity, as rows (3, 3), by k and by s; as in `filter.py`."""
    x, y, z = v
    square = x * x + y * y + z * z
    speed = np.sqrt(square)
    inverse = 1.0 / max(speed, _SLOW)
    kv, ks, si = k * speed, k * inverse, s * inverse
    cube = si * inverse * inverse if speed > _SLOW else 0.0
    a = (-kv * x + si * y, -kv * y - si * x, -kv * z - GRAVITY)
    jx = (-kv - ks * x * x - cube * y * x, -ks * x * y + si - cube * y * y, -ks * x * z - cube * y * z)
    jy = (-ks * x * y - si + cube * x * x, -kv - ks * y * y + cube * x * y, -ks * y * z + cube * x * z)
    jz = (-ks * z * x, -ks * z * y, -kv - ks * z * z)
    return a, (jx, jy, jz), (-speed * x, -speed * y, -speed * z), (inverse * y, -inverse * x, 0.0)


@_inlined
def _dot3(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@_inlined
def _dot5(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3] + a[4] * b[4]


@_inlined
def _along(a, h, b):
    """a + h b, (3,)."""
    return (a[0] + h * b[0], a[1] + h * b[1], a[2] + h * b[2])


@_inlined
def _tangent(j, own, change):
    """Change of the acceleration (3,) for a change of velocity, and of whatever own is the derivative by."""
    return (_dot3(j[0], change) + own[0], _dot3(j[1], change) + own[1], _dot3(j[2], change) + own[2])


@_inlined
def _carried(j1, j2, j3, j4, o1, o2, o3, o4, begin, dt):
    """One column of the step's Jacobian: change of position and of velocity (3,) each, for a change `begin` of velocity."""
    w1 = _tangent(j1, o1, begin)
    c2 = _along(begin, 0.5 * dt, w1)
    w2 = _tangent(j2, o2, c2)
    c3 = _along(begin, 0.5 * dt, w2)
    w3 = _tangent(j3, o3, c3)
    c4 = _along(begin, dt, w3)
    w4 = _tangent(j4, o4, c4)
    sixth = dt / 6
    move = (sixth * (begin[0] + 2 * (c2[0] + c3[0]) + c4[0]), sixth * (begin[1] + 2 * (c2[1] + c3[1]) + c4[1]),
            sixth * (begin[2] + 2 * (c2[2] + c3[2]) + c4[2]))
    turn = (begin[0] + sixth * (w1[0] + 2 * (w2[0] + w3[0]) + w4[0]), begin[1] + sixth * (w1[1] + 2 * (w2[1] + w3[1]) + w4[1]),
            begin[2] + sixth * (w1[2] + 2 * (w2[2] + w3[2]) + w4[2]))
    return move, turn


@_inlined
def _flight(p, v, k, s, dt):
    """One Runge-Kutta step: position, velocity, and rows (3, 5) of both by the old velocity, k and s."""
    a1, j1, k1, s1 = _slope(v, k, s)
    v2 = _along(v, 0.5 * dt, a1)
    a2, j2, k2, s2 = _slope(v2, k, s)
    v3 = _along(v, 0.5 * dt, a2)
    a3, j3, k3, s3 = _slope(v3, k, s)
    v4 = _along(v, dt, a3)
    a4, j4, k4, s4 = _slope(v4, k, s)
    sixth = dt / 6
    place = (p[0] + sixth * (v[0] + 2 * (v2[0] + v3[0]) + v4[0]), p[1] + sixth * (v[1] + 2 * (v2[1] + v3[1]) + v4[1]),
             p[2] + sixth * (v[2] + 2 * (v2[2] + v3[2]) + v4[2]))
    speed = (v[0] + sixth * (a1[0] + 2 * (a2[0] + a3[0]) + a4[0]), v[1] + sixth * (a1[1] + 2 * (a2[1] + a3[1]) + a4[1]),
             v[2] + sixth * (a1[2] + 2 * (a2[2] + a3[2]) + a4[2]))
    still = (0.0, 0.0, 0.0)
    m0, t0 = _carried(j1, j2, j3, j4, still, still, still, still, (1.0, 0.0, 0.0), dt)
    m1, t1 = _carried(j1, j2, j3, j4, still, still, still, still, (0.0, 1.0, 0.0), dt)
    m2, t2 = _carried(j1, j2, j3, j4, still, still, still, still, (0.0, 0.0, 1.0), dt)
    m3, t3 = _carried(j1, j2, j3, j4, k1, k2, k3, k4, still, dt)
    m4, t4 = _carried(j1, j2, j3, j4, s1, s2, s3, s4, still, dt)
    move = ((m0[0], m1[0], m2[0], m3[0], m4[0]), (m0[1], m1[1], m2[1], m3[1], m4[1]), (m0[2], m1[2], m2[2], m3[2], m4[2]))
    turn = ((t0[0], t1[0], t2[0], t3[0], t4[0]), (t0[1], t1[1], t2[1], t3[1], t4[1]), (t0[2], t1[2], t2[2], t3[2], t4[2]))
    return place, speed, move, turn


@_inlined
def _times(row, square):
    """row (5,) times a symmetric (5, 5)."""
    return (_dot5(row, square[0]), _dot5(row, square[1]), _dot5(row, square[2]), _dot5(row, square[3]), _dot5(row, square[4]))


@_inlined
def _plus(a, b):
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4])


@_inlined
def _turned(pp, pq, qq, move, turn, span, noise, drift_noise):
    """F P F' + Q of one step, with P in blocks: positions pp (lower triangle, 6), pq (3, 5), the rest qq (5, 5)."""
    t0, t1, t2 = _plus(_times(move[0], qq), pq[0]), _plus(_times(move[1], qq), pq[1]), _plus(_times(move[2], qq), pq[2])
    u0, u1, u2 = _times(turn[0], qq), _times(turn[1], qq), _times(turn[2], qq)
    q = noise * noise
    qpp, qpv, qvv = q * span * span * span / 3, q * span * span / 2, q * span
    pp = (pp[0] + _dot5(t0, move[0]) + _dot5(move[0], pq[0]) + qpp,
          pp[1] + _dot5(t1, move[0]) + _dot5(move[1], pq[0]),
          pp[2] + _dot5(t1, move[1]) + _dot5(move[1], pq[1]) + qpp,
          pp[3] + _dot5(t2, move[0]) + _dot5(move[2], pq[0]),
          pp[4] + _dot5(t2, move[1]) + _dot5(move[2], pq[1]),
          pp[5] + _dot5(t2, move[2]) + _dot5(move[2], pq[2]) + qpp)
    pq = ((_dot5(t0, turn[0]) + qpv, _dot5(t0, turn[1]), _dot5(t0, turn[2]), t0[3], t0[4]),
          (_dot5(t1, turn[0]), _dot5(t1, turn[1]) + qpv, _dot5(t1, turn[2]), t1[3], t1[4]),
          (_dot5(t2, turn[0]), _dot5(t2, turn[1]), _dot5(t2, turn[2]) + qpv, t2[3], t2[4]))
    v10, v20, v21 = _dot5(u1, turn[0]), _dot5(u2, turn[0]), _dot5(u2, turn[1])
    qq = ((_dot5(u0, turn[0]) + qvv, v10, v20, u0[3], u0[4]),
          (v10, _dot5(u1, turn[1]) + qvv, v21, u1[3], u1[4]),
          (v20, v21, _dot5(u2, turn[2]) + qvv, u2[3], u2[4]),
          (u0[3], u1[3], u2[3], qq[3][3], qq[3][4]),
          (u0[4], u1[4], u2[4], qq[4][3], qq[4][4] + drift_noise * drift_noise * span))
    return pp, pq, qq


@_inlined
def _image(r, t, lens, p):
    """Depth [m], pixel, and its rows (3,) by position; r rows of the world-to-camera rotation, t translation, lens fx, fy, cx, cy."""
    x, y, z = _dot3(r[0], p) + t[0], _dot3(r[1], p) + t[1], _dot3(r[2], p) + t[2]
    inverse = 1.0 / max(z, _NEAR)
    nx, ny = x * inverse, y * inverse
    fx, fy = lens[0] * inverse, lens[1] * inverse
    row_u = (fx * (r[0][0] - nx * r[2][0]), fx * (r[0][1] - nx * r[2][1]), fx * (r[0][2] - nx * r[2][2]))
    row_v = (fy * (r[1][0] - ny * r[2][0]), fy * (r[1][1] - ny * r[2][1]), fy * (r[1][2] - ny * r[2][2]))
    return z, lens[0] * nx + lens[2], lens[1] * ny + lens[3], row_u, row_v


@_inlined
def _less(row, gain, extra, a, g):
    """A row (8,) of (I - K h) P (I - K h)' + K R K': less gain times a, and extra times g, which is what the rounding left."""
    return (row[0] - gain * a[0] + extra * g[0], row[1] - gain * a[1] + extra * g[1], row[2] - gain * a[2] + extra * g[2],
            row[3] - gain * a[3] + extra * g[3], row[4] - gain * a[4] + extra * g[4], row[5] - gain * a[5] + extra * g[5],
            row[6] - gain * a[6] + extra * g[6], row[7] - gain * a[7] + extra * g[7])


@_inlined
def _one_number(x, cov, residual, h, variance):
    """Joseph update with one number that depends on position by h (3,): x (8,), covariance (8 rows), and the share of NIS."""
    a = (_dot3((cov[0][0], cov[0][1], cov[0][2]), h), _dot3((cov[1][0], cov[1][1], cov[1][2]), h), _dot3((cov[2][0], cov[2][1], cov[2][2]), h),
         _dot3((cov[3][0], cov[3][1], cov[3][2]), h), _dot3((cov[4][0], cov[4][1], cov[4][2]), h), _dot3((cov[5][0], cov[5][1], cov[5][2]), h),
         _dot3((cov[6][0], cov[6][1], cov[6][2]), h), _dot3((cov[7][0], cov[7][1], cov[7][2]), h))  # P h
    inverse = 1.0 / (h[0] * a[0] + h[1] * a[1] + h[2] * a[2] + variance)
    g = (a[0] * inverse, a[1] * inverse, a[2] * inverse, a[3] * inverse, a[4] * inverse, a[5] * inverse, a[6] * inverse, a[7] * inverse)
    keep = 1.0 - (h[0] * g[0] + h[1] * g[1] + h[2] * g[2])
    d = (variance * g[0] - keep * a[0], variance * g[1] - keep * a[1], variance * g[2] - keep * a[2], variance * g[3] - keep * a[3],
         variance * g[4] - keep * a[4], variance * g[5] - keep * a[5], variance * g[6] - keep * a[6], variance * g[7] - keep * a[7])
    cov = (_less(cov[0], g[0], d[0], a, g), _less(cov[1], g[1], d[1], a, g), _less(cov[2], g[2], d[2], a, g), _less(cov[3], g[3], d[3], a, g),
           _less(cov[4], g[4], d[4], a, g), _less(cov[5], g[5], d[5], a, g), _less(cov[6], g[6], d[6], a, g), _less(cov[7], g[7], d[7], a, g))
    x = (x[0] + g[0] * residual, x[1] + g[1] * residual, x[2] + g[2] * residual, x[3] + g[3] * residual, x[4] + g[4] * residual,
         x[5] + g[5] * residual, x[6] + g[6] * residual, x[7] + g[7] * residual)
    return x, cov, residual * residual * inverse


@_inlined
def _state(block, lane):
    """State (8,) of a lane."""
    return (block[0 * LANES + lane], block[1 * LANES + lane], block[2 * LANES + lane], block[3 * LANES + lane], block[4 * LANES + lane],
            block[5 * LANES + lane], block[6 * LANES + lane], block[7 * LANES + lane])


@_inlined
def _covariance(block, lane):
    """Covariance of a lane as rows (8, 8): only the lower triangle is kept in the block."""
    c00 = block[8 * LANES + lane]
    c10, c11 = block[9 * LANES + lane], block[10 * LANES + lane]
    c20, c21, c22 = block[11 * LANES + lane], block[12 * LANES + lane], block[13 * LANES + lane]
    c30, c31, c32, c33 = block[14 * LANES + lane], block[15 * LANES + lane], block[16 * LANES + lane], block[17 * LANES + lane]
    c40, c41, c42, c43, c44 = block[18 * LANES + lane], block[19 * LANES + lane], block[20 * LANES + lane], block[21 * LANES + lane], block[22 * LANES + lane]
    c50, c51, c52 = block[23 * LANES + lane], block[24 * LANES + lane], block[25 * LANES + lane]
    c53, c54, c55 = block[26 * LANES + lane], block[27 * LANES + lane], block[28 * LANES + lane]
    c60, c61, c62 = block[29 * LANES + lane], block[30 * LANES + lane], block[31 * LANES + lane]
    c63, c64, c65 = block[32 * LANES + lane], block[33 * LANES + lane], block[34 * LANES + lane]
    c66 = block[35 * LANES + lane]
    c70, c71, c72 = block[36 * LANES + lane], block[37 * LANES + lane], block[38 * LANES + lane]
    c73, c74, c75 = block[39 * LANES + lane], block[40 * LANES + lane], block[41 * LANES + lane]
    c76, c77 = block[42 * LANES + lane], block[43 * LANES + lane]
    return ((c00, c10, c20, c30, c40, c50, c60, c70), (c10, c11, c21, c31, c41, c51, c61, c71), (c20, c21, c22, c32, c42, c52, c62, c72),
            (c30, c31, c32, c33, c43, c53, c63, c73), (c40, c41, c42, c43, c44, c54, c64, c74), (c50, c51, c52, c53, c54, c55, c65, c75),
            (c60, c61, c62, c63, c64, c65, c66, c76), (c70, c71, c72, c73, c74, c75, c76, c77))


@_inlined
def _write(block, lane, choice, x, cov):
    """State and the covariance's lower triangle into the block where choice is true."""
    block[0 * LANES + lane] = x[0] if choice else block[0 * LANES + lane]
    block[1 * LANES + lane] = x[1] if choice else block[1 * LANES + lane]
    block[2 * LANES + lane] = x[2] if choice else block[2 * LANES + lane]
    block[3 * LANES + lane] = x[3] if choice else block[3 * LANES + lane]
    block[4 * LANES + lane] = x[4] if choice else block[4 * LANES + lane]
    block[5 * LANES + lane] = x[5] if choice else block[5 * LANES + lane]
    block[6 * LANES + lane] = x[6] if choice else block[6 * LANES + lane]
    block[7 * LANES + lane] = x[7] if choice else block[7 * LANES + lane]
    block[8 * LANES + lane] = cov[0][0] if choice else block[8 * LANES + lane]
    block[9 * LANES + lane] = cov[1][0] if choice else block[9 * LANES + lane]
    block[10 * LANES + lane] = cov[1][1] if choice else block[10 * LANES + lane]
    block[11 * LANES + lane] = cov[2][0] if choice else block[11 * LANES + lane]
    block[12 * LANES + lane] = cov[2][1] if choice else block[12 * LANES + lane]
    block[13 * LANES + lane] = cov[2][2] if choice else block[13 * LANES + lane]
    block[14 * LANES + lane] = cov[3][0] if choice else block[14 * LANES + lane]
    block[15 * LANES + lane] = cov[3][1] if choice else block[15 * LANES + lane]
    block[16 * LANES + lane] = cov[3][2] if choice else block[16 * LANES + lane]
    block[17 * LANES + lane] = cov[3][3] if choice else block[17 * LANES + lane]
    block[18 * LANES + lane] = cov[4][0] if choice else block[18 * LANES + lane]
    block[19 * LANES + lane] = cov[4][1] if choice else block[19 * LANES + lane]
    block[20 * LANES + lane] = cov[4][2] if choice else block[20 * LANES + lane]
    block[21 * LANES + lane] = cov[4][3] if choice else block[21 * LANES + lane]
    block[22 * LANES + lane] = cov[4][4] if choice else block[22 * LANES + lane]
    block[23 * LANES + lane] = cov[5][0] if choice else block[23 * LANES + lane]
    block[24 * LANES + lane] = cov[5][1] if choice else block[24 * LANES + lane]
    block[25 * LANES + lane] = cov[5][2] if choice else block[25 * LANES + lane]
    block[26 * LANES + lane] = cov[5][3] if choice else block[26 * LANES + lane]
    block[27 * LANES + lane] = cov[5][4] if choice else block[27 * LANES + lane]
    block[28 * LANES + lane] = cov[5][5] if choice else block[28 * LANES + lane]
    block[29 * LANES + lane] = cov[6][0] if choice else block[29 * LANES + lane]
    block[30 * LANES + lane] = cov[6][1] if choice else block[30 * LANES + lane]
    block[31 * LANES + lane] = cov[6][2] if choice else block[31 * LANES + lane]
    block[32 * LANES + lane] = cov[6][3] if choice else block[32 * LANES + lane]
    block[33 * LANES + lane] = cov[6][4] if choice else block[33 * LANES + lane]
    block[34 * LANES + lane] = cov[6][5] if choice else block[34 * LANES + lane]
    block[35 * LANES + lane] = cov[6][6] if choice else block[35 * LANES + lane]
    block[36 * LANES + lane] = cov[7][0] if choice else block[36 * LANES + lane]
    block[37 * LANES + lane] = cov[7][1] if choice else block[37 * LANES + lane]
    block[38 * LANES + lane] = cov[7][2] if choice else block[38 * LANES + lane]
    block[39 * LANES + lane] = cov[7][3] if choice else block[39 * LANES + lane]
    block[40 * LANES + lane] = cov[7][4] if choice else block[40 * LANES + lane]
    block[41 * LANES + lane] = cov[7][5] if choice else block[41 * LANES + lane]
    block[42 * LANES + lane] = cov[7][6] if choice else block[42 * LANES + lane]
    block[43 * LANES + lane] = cov[7][7] if choice else block[43 * LANES + lane]


@_compiled
def predict_lanes(block, part, drift_noise):
    """State and covariance of the block's FOLLOWED lanes `part` of DT later, in place; part of DT must be at most STEP_MAX."""
    for lane in range(LANES):
        dt, noise = block[DT * LANES + lane] * part, block[ACCELERATION * LANES + lane]
        x, c = _state(block, lane), _covariance(block, lane)
        p, v, move, turn = _flight((x[0], x[1], x[2]), (x[3], x[4], x[5]), x[6], x[7], dt)
        pp, pq, qq = _turned((c[0][0], c[1][0], c[1][1], c[2][0], c[2][1], c[2][2]),
                             (_rest(c[0]), _rest(c[1]), _rest(c[2])), (_rest(c[3]), _rest(c[4]), _rest(c[5]), _rest(c[6]), _rest(c[7])),
                             move, turn, dt, noise, drift_noise)
        later = ((pp[0], pp[0], pp[0]), (pp[1], pp[2], pp[2]), (pp[3], pp[4], pp[5]),
                 (pq[0][0], pq[1][0], pq[2][0], qq[0][0], qq[0][1], qq[0][2], qq[0][3], qq[0][4]),
                 (pq[0][1], pq[1][1], pq[2][1], qq[1][0], qq[1][1], qq[1][2], qq[1][3], qq[1][4]),
                 (pq[0][2], pq[1][2], pq[2][2], qq[2][0], qq[2][1], qq[2][2], qq[2][3], qq[2][4]),
                 (pq[0][3], pq[1][3], pq[2][3], qq[3][0], qq[3][1], qq[3][2], qq[3][3], qq[3][4]),
                 (pq[0][4], pq[1][4], pq[2][4], qq[4][0], qq[4][1], qq[4][2], qq[4][3], qq[4][4]))
        _write(block, lane, block[FOLLOWED * LANES + lane] != 0.0, (p[0], p[1], p[2], v[0], v[1], v[2], x[6], x[7]), later)


@_inlined
def _rest(row):
    """Columns v, k, s of a row."""
    return (row[3], row[4], row[5], row[6], row[7])


@_compiled
def correct_lanes(block, relative, lenses, four, variance, gate):
    """Take in the measurements of the block's FOLLOWED and SEEN lanes, in place.

    NIS becomes a measurement's normalised innovation squared, or -1 where there is none or one of the cameras could not see the
    shuttle; one within the gate is taken. relative (12,): right from left camera, rotation rows and translation [m]; lenses (8,):
    fx, fy, cx, cy of both [px]; four: whether a measurement is uL, vL, uR, vR instead of u, v, disparity; variance (4,) [px^2].
    """
    rr = ((relative[0], relative[1], relative[2]), (relative[3], relative[4], relative[5]), (relative[6], relative[7], relative[8]))
    rt = (relative[9], relative[10], relative[11])
    left_lens, right_lens = (lenses[0], lenses[1], lenses[2], lenses[3]), (lenses[4], lenses[5], lenses[6], lenses[7])
    v0, v1, v2, v3 = variance[0], variance[1], variance[2], variance[3]
    fourth, left_share, right_share = (1.0, 0.0, 1.0) if four else (0.0, 1.0, -1.0)
    for lane in range(LANES):
        wanted = block[FOLLOWED * LANES + lane] * block[SEEN * LANES + lane] != 0.0
        x, cov = _state(block, lane), _covariance(block, lane)
        m, r, t = MEASUREMENT * LANES + lane, ROTATION * LANES + lane, TRANSLATION * LANES + lane
        a0, a1, a2 = _three(block, r), _three(block, r + 3 * LANES), _three(block, r + 6 * LANES)
        t0 = _three(block, t)
        c0, c1, c2 = (a0[0], a1[0], a2[0]), (a0[1], a1[1], a2[1]), (a0[2], a1[2], a2[2])
        b0 = (_dot3(rr[0], c0), _dot3(rr[0], c1), _dot3(rr[0], c2))
        b1 = (_dot3(rr[1], c0), _dot3(rr[1], c1), _dot3(rr[1], c2))
        b2 = (_dot3(rr[2], c0), _dot3(rr[2], c1), _dot3(rr[2], c2))
        t1 = (_dot3(rr[0], t0) + rt[0], _dot3(rr[1], t0) + rt[1], _dot3(rr[2], t0) + rt[2])
        p = (x[0], x[1], x[2])
        depth, u, v, h0, h1 = _image((a0, a1, a2), t0, left_lens, p)
        depth_right, u_right, v_right, h2, h3 = _image((b0, b1, b2), t1, right_lens, p)
        third = left_share * u + right_share * u_right
        h2 = (left_share * h0[0] + right_share * h2[0], left_share * h0[1] + right_share * h2[1], left_share * h0[2] + right_share * h2[2])
        h3 = (fourth * h3[0], fourth * h3[1], fourth * h3[2])  # without a fourth number its gain and its share of NIS are zero
        new, tight, total = _one_number(x, cov, block[m] - u, h0, v0)
        new, tight, nis = _one_number(new, tight, block[m + LANES] - v - _moved(h1, new, x), h1, v1)
        total += nis
        new, tight, nis = _one_number(new, tight, block[m + 2 * LANES] - third - _moved(h2, new, x), h2, v2)
        total += nis
        new, tight, nis = _one_number(new, tight, fourth * (block[m + 3 * LANES] - v_right) - _moved(h3, new, x), h3, v3)
        total += nis
        usable = wanted and depth > _NEAR and depth_right > _NEAR and total == total
        block[NIS * LANES + lane] = total if usable else -1.0
        _write(block, lane, usable and total <= gate, new, tight)


@_inlined
def _three(block, at):
    return (block[at], block[at + LANES], block[at + 2 * LANES])


@_inlined
def _moved(h, new, x):
    """What the numbers taken before have changed in the one with slope h."""
    return h[0] * (new[0] - x[0]) + h[1] * (new[1] - x[1]) + h[2] * (new[2] - x[2])
