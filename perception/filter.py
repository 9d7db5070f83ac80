"""Extended Kalman filter over one flight: state [p, v, k, s], transition with Jacobian, projection, Joseph update; compiled.

State (8,): position [m], velocity [m/s], drag k [1/m], drift s [m/s^2], of the flight model in `flight.py`. World frame, z up.
One filter and thousands call the same functions: `tracker.py` one at a time, `tracker_batch.py` in a parallel loop.

An *eye* is where and how one camera sees: (16,) array of left-to-right rotation rows (9), translation (3) [m] from world to
camera, and fx, fy, cx, cy [px]. Pixels are undistorted, see `triangulation.py`. height_scale is true over the rig's own
heights, 1 for a rig that is metric.
"""

import numpy as np
from numba import njit

from perception.flight import GRAVITY, STEP_MAX

Array = np.ndarray

STATES = 8
_SLOW = 0.3  # [m/s] below it the direction of flight is no use: drift and its derivatives fade to nothing instead of blowing up
_NEAR = 0.05  # [m] a point nearer to a camera than this, or behind it, has no image


@njit(cache=True, inline="always")
def _slope(vx, vy, vz, k, s, a, j):
    """Acceleration a (3,) and its derivative j (3, 5) by velocity, k and s."""
    speed = np.sqrt(vx * vx + vy * vy + vz * vz)
    inverse = 1.0 / max(speed, _SLOW)
    kv, ks = k * speed, k * inverse
    a[0] = -kv * vx + s * inverse * vy
    a[1] = -kv * vy - s * inverse * vx
    a[2] = -kv * vz - GRAVITY
    # d(1/|v|)/dv is left out below _SLOW, where 1/|v| is held
    cube = s * inverse * inverse * inverse if speed > _SLOW else 0.0
    j[0, 0] = -kv - ks * vx * vx - cube * vy * vx
    j[0, 1] = -ks * vx * vy + s * inverse - cube * vy * vy
    j[0, 2] = -ks * vx * vz - cube * vy * vz
    j[1, 0] = -ks * vx * vy - s * inverse + cube * vx * vx
    j[1, 1] = -kv - ks * vy * vy + cube * vx * vy
    j[1, 2] = -ks * vy * vz + cube * vx * vz
    j[2, 0] = -ks * vz * vx
    j[2, 1] = -ks * vz * vy
    j[2, 2] = -kv - ks * vz * vz
    j[0, 3], j[1, 3], j[2, 3] = -speed * vx, -speed * vy, -speed * vz
    j[0, 4], j[1, 4], j[2, 4] = inverse * vy, -inverse * vx, 0.0


@njit(cache=True)
def flight_step(x, dt, move, turn, work):
    """One Runge-Kutta step of x (8,) in place, with its Jacobian: `rk4_step` of `flight.py` and the same step of its tangent.

    dt [s]. move, turn (3, 5): derivative of the new position and velocity by (velocity, k, s); by the old position they are the
    identity and zero. work (6, 3, 5) is scratch, see `workspace`.
    """
    a, j, sum_v, sum_p, w, stage = work[5, 0], work[0], work[1], work[2], work[3], work[4]
    v0, v1, v2, k, s = x[3], x[4], x[5], x[6], x[7]
    ax = ay = az = 0.0
    px = py = pz = qx = qy = qz = 0.0
    for n in range(4):
        h = 0.0 if n == 0 else (dt if n == 3 else 0.5 * dt)
        weight = dt / 3 if n == 1 or n == 2 else dt / 6
        yx, yy, yz = v0 + h * ax, v1 + h * ay, v2 + h * az
        _slope(yx, yy, yz, k, s, a, j)
        ax, ay, az = a[0], a[1], a[2]
        px, py, pz = px + weight * yx, py + weight * yy, pz + weight * yz
        qx, qy, qz = qx + weight * ax, qy + weight * ay, qz + weight * az
        # stage = d(stage velocity)/d(v, k, s) = [I, 0] + h * (slope of the stage before); then its own slope w = j_v stage + j_ks
        for r in range(3):
            for c in range(5):
                stage[r, c] = h * w[r, c] if n > 0 else 0.0
            stage[r, r] += 1.0
        for r in range(3):
            for c in range(5):
                w[r, c] = j[r, 0] * stage[0, c] + j[r, 1] * stage[1, c] + j[r, 2] * stage[2, c]
            w[r, 3] += j[r, 3]
            w[r, 4] += j[r, 4]
        for r in range(3):
            for c in range(5):
                sum_p[r, c] = weight * stage[r, c] + (sum_p[r, c] if n > 0 else 0.0)
                sum_v[r, c] = weight * w[r, c] + (sum_v[r, c] if n > 0 else 0.0)
    x[0] += px
    x[1] += py
    x[2] += pz
    x[3] = v0 + qx
    x[4] = v1 + qy
    x[5] = v2 + qz
    for r in range(3):
        for c in range(5):
            move[r, c] = sum_p[r, c]
            turn[r, c] = sum_v[r, c]
        turn[r, r] += 1.0


@njit(cache=True)
def predict(x, cov, dt, noise, drift_noise, work):
    """State x (8,) and covariance (8, 8) dt [s] later, in place; dt above STEP_MAX is split into equal steps.

    noise: white acceleration [m/s^2/sqrt(Hz)] on every axis; drift_noise: random walk of s [m/s^2/sqrt(s)]; work (12, 3, 5) scratch.
    """
    if dt <= 0.0:
        return
    parts = max(1, int(np.ceil(dt / STEP_MAX - 1e-9)))
    h = dt / parts
    move, turn, t1, u, move2, turn2 = work[6], work[7], work[8], work[9], work[10], work[11]
    done = 0
    while done < parts:
        flight_step(x, h, move, turn, work)
        done, span = done + 1, h
        if done < parts:  # two steps share one turn of the covariance, which costs as much as both
            flight_step(x, h, move2, turn2, work)
            done, span = done + 1, 2 * h
            for r in range(3):
                for c in range(5):
                    t1[r, c] = move2[r, 0] * turn[0, c] + move2[r, 1] * turn[1, c] + move2[r, 2] * turn[2, c]
                    u[r, c] = turn2[r, 0] * turn[0, c] + turn2[r, 1] * turn[1, c] + turn2[r, 2] * turn[2, c]
                for c in range(3, 5):
                    t1[r, c] += move2[r, c]
                    u[r, c] += turn2[r, c]
            for r in range(3):
                for c in range(5):
                    move[r, c] += t1[r, c]
                    turn[r, c] = u[r, c]
        q = noise * noise
        qpp, qpv, qvv = q * span * span * span / 3, q * span * span / 2, q * span
        for r in range(3):
            for c in range(5):
                total, other = cov[r, 3 + c], 0.0
                for n in range(5):
                    total += move[r, n] * cov[3 + n, 3 + c]
                    other += turn[r, n] * cov[3 + n, 3 + c]
                t1[r, c] = total
                u[r, c] = other
        for r in range(3):  # position block first: it still needs the old position-velocity block
            for c in range(r + 1):
                total = cov[r, c]
                for n in range(5):
                    total += t1[r, n] * move[c, n] + move[r, n] * cov[c, 3 + n]
                work[5, r, c] = total
        for r in range(3):
            for c in range(r + 1):
                cov[r, c] = work[5, r, c]
                cov[c, r] = work[5, r, c]
            cov[r, r] += qpp
            for c in range(3):
                total = qpv if r == c else 0.0
                for n in range(5):
                    total += t1[r, n] * turn[c, n]
                cov[r, 3 + c] = total
                cov[3 + c, r] = total
            for c in range(6, 8):
                cov[r, c] = t1[r, c - 3]
                cov[c, r] = t1[r, c - 3]
        for r in range(3):
            for c in range(r + 1):
                total = qvv if r == c else 0.0
                for n in range(5):
                    total += u[r, n] * turn[c, n]
                cov[3 + r, 3 + c] = total
                cov[3 + c, 3 + r] = total
            for c in range(6, 8):
                cov[3 + r, c] = u[r, c - 3]
                cov[c, 3 + r] = u[r, c - 3]
        cov[7, 7] += drift_noise * drift_noise * span


@njit(cache=True)
def see(eye, x, height_scale, pixel, slope):
    """Image of the shuttle in an eye (16,): pixel (2,) [px] and its derivative slope (2, 3) by position. False if not in front."""
    z = x[2] / height_scale
    cx = eye[0] * x[0] + eye[1] * x[1] + eye[2] * z + eye[9]
    cy = eye[3] * x[0] + eye[4] * x[1] + eye[5] * z + eye[10]
    cz = eye[6] * x[0] + eye[7] * x[1] + eye[8] * z + eye[11]
    if not cz > _NEAR:
        return False
    inverse = 1.0 / cz
    nx, ny = cx * inverse, cy * inverse
    pixel[0] = eye[12] * nx + eye[14]
    pixel[1] = eye[13] * ny + eye[15]
    for c in range(3):
        down = 1.0 / height_scale if c == 2 else 1.0
        slope[0, c] = eye[12] * (eye[c] - nx * eye[6 + c]) * inverse * down
        slope[1, c] = eye[13] * (eye[3 + c] - ny * eye[6 + c]) * inverse * down
    return True


@njit(cache=True)
def innovation(cov, slope, noise, size, chol, pht):
    """Cholesky factor of S = H P H' + R, and (P H')', for a measurement of `size` numbers that depends on position alone.

    cov (8, 8), slope H (size, 3), noise R (size, size); writes chol (size, size) and pht (size, 8). Returns log det S, or NaN
    where S is not positive. Here and in `correct` the innermost loops run over the eight states, which the compiler does at once.
    """
    for m in range(size):
        a, b, c = slope[m, 0], slope[m, 1], slope[m, 2]
        for n in range(STATES):
            pht[m, n] = a * cov[0, n] + b * cov[1, n] + c * cov[2, n]
    logdet = 0.0
    for m in range(size):
        for n in range(m + 1):
            total = noise[m, n] + slope[m, 0] * pht[n, 0] + slope[m, 1] * pht[n, 1] + slope[m, 2] * pht[n, 2]
            for i in range(n):
                total -= chol[m, i] * chol[n, i]
            if n == m:
                if not total > 0.0:
                    return np.nan
                chol[m, m] = np.sqrt(total)
                logdet += np.log(total)
            else:
                chol[m, n] = total / chol[n, n]
    return logdet


@njit(cache=True)
def whitened(chol, residual, size, out):
    """out = L^-1 residual; returns its squared length, the normalised innovation squared (chi-square with `size` freedoms)."""
    nis = 0.0
    for m in range(size):
        total = residual[m]
        for n in range(m):
            total -= chol[m, n] * out[n]
        out[m] = total / chol[m, m]
        nis += out[m] * out[m]
    return nis


@njit(cache=True)
def correct(x, cov, slope, noise, size, chol, pht, white, gain, rest, left):
    """Kalman update in Joseph form, P = (I - K H) P (I - K H)' + K R K', in place; after `innovation` and `whitened`.

    gain (size, 8), rest (8, 8), left (3, 8) are scratch. The result is symmetric to the last bit.
    """
    for m in range(size):  # K' = S^-1 (P H')' by two triangular solves; x += K residual = (P H' L^-T) (L^-1 residual)
        for r in range(STATES):
            gain[m, r] = pht[m, r]
        for n in range(m):
            factor = chol[m, n]
            for r in range(STATES):
                gain[m, r] -= factor * gain[n, r]
        inverse, pull = 1.0 / chol[m, m], white[m]
        for r in range(STATES):
            gain[m, r] *= inverse
            x[r] += gain[m, r] * pull
    for back in range(size):
        m = size - 1 - back
        for n in range(m + 1, size):
            factor = chol[n, m]
            for r in range(STATES):
                gain[m, r] -= factor * gain[n, r]
        inverse = 1.0 / chol[m, m]
        for r in range(STATES):
            gain[m, r] *= inverse
    for c in range(3):  # I - K H differs from I in the three position columns alone
        for r in range(STATES):
            left[c, r] = 0.0
        left[c, c] = 1.0
        for m in range(size):
            factor = slope[m, c]
            for r in range(STATES):
                left[c, r] -= factor * gain[m, r]
    for r in range(STATES):  # rest = (I - K H) P
        a, b, c = left[0, r], left[1, r], left[2, r]
        own = 1.0 if r >= 3 else 0.0
        for n in range(STATES):
            rest[r, n] = own * cov[r, n] + a * cov[0, n] + b * cov[1, n] + c * cov[2, n]
    for m in range(size):  # where P H' was: R K'
        for r in range(STATES):
            pht[m, r] = 0.0
        for n in range(size):
            factor = noise[m, n]
            for r in range(STATES):
                pht[m, r] += factor * gain[n, r]
    for r in range(STATES):  # both terms are squares of a kind, so that no rounding can make a variance negative
        a, b, c = rest[r, 0], rest[r, 1], rest[r, 2]
        rest[r, 0], rest[r, 1], rest[r, 2] = 0.0, 0.0, 0.0
        for n in range(STATES):
            rest[r, n] += a * left[0, n] + b * left[1, n] + c * left[2, n]
        for m in range(size):
            factor = gain[m, r]
            for n in range(STATES):
                rest[r, n] += factor * pht[m, n]
    for r in range(STATES):
        for n in range(r + 1):
            cov[r, n] = rest[r, n]
            cov[n, r] = rest[r, n]


def workspace() -> Array:
    """Scratch (12, 3, 5) for `predict` and `flight_step`; one per thread."""
    return np.zeros((12, 3, 5))
