"""Online tracker: candidates of one or two cameras in, the shuttle's flight out; late and out-of-order exposures included.

A small set of hypotheses, each one EKF (`filter.py`), and one rule for start, confirmation, restart at a hit and end: the
log-likelihood ratio of "these candidates are one flight" to "they are clutter" (the track score of Sittler 1964 and Blackman
2004). A candidate that fits adds ln(p N(innovation) / clutter density), a miss ln(1 - p). Clutter density is what the images
show: among 200 false candidates a frame a track must prove itself longer than in a clean image.

Each camera updates the filter by itself at its own time of exposure, so cameras need not be synchronised.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit

from perception.filter import STATES, correct, innovation, predict, see, whitened, workspace
from perception.start import chains
from perception.track import Hit, Track, TrackerCfg
from perception.triangulation import Pairs, Sight, pair

Array = np.ndarray


@njit(cache=True)
def _look(x, cov, eye, height_scale, pixels, noises, gate, soft, residual, best_residual):
    """Nearest candidate of one camera, and the Joseph update with it, in place.

    Returns (index, NIS, log-likelihood); index -1: none within the gate; -2: the shuttle has no image there.
    """
    slope, pixel = np.empty((2, 3)), np.empty(2)
    if not see(eye, x, height_scale, pixel, slope):
        return -2, 0.0, 0.0
    chol, pht, white = np.empty((2, 2)), np.empty((2, STATES)), np.empty(2)
    best, best_cost, best_nis, best_log = -1, np.inf, 0.0, 0.0
    for c in range(len(pixels)):
        logdet = innovation(cov, slope, noises[c], 2, chol, pht)
        residual[0], residual[1] = pixels[c, 0] - pixel[0], pixels[c, 1] - pixel[1]
        nis = whitened(chol, residual, 2, white)
        if nis <= gate and nis + logdet < best_cost:
            best, best_cost, best_nis = c, nis + logdet, nis
            best_log = -0.5 * (nis + logdet) - 1.8378770664093453  # ln 2 pi
            best_residual[0], best_residual[1] = residual[0], residual[1]
    if best >= 0:
        noise = noises[best] * max(1.0, best_nis / soft)
        innovation(cov, slope, noise, 2, chol, pht)
        whitened(chol, best_residual, 2, white)
        correct(x, cov, slope, noise, 2, chol, pht, white, np.empty((2, STATES)), np.empty((STATES, STATES)),
                np.empty((3, STATES)))
    return best, best_nis, best_log


@njit(cache=True)
def inside(eye, x, height_scale, width, height, margin):
    """Whether the shuttle's image lies in an image of width by height [px], margin [px] from its border."""
    pixel = np.empty(2)
    if not see(eye, x, height_scale, pixel, np.empty((2, 3))):
        return False
    return margin <= pixel[0] <= width - margin and margin <= pixel[1] <= height - margin


@njit(cache=True)
def _still(eyes, pixels, noises, point, height_scale):
    """Chi-square of candidates (M, 2) as images of one point that does not move: Gauss-Newton from point (3,), used up."""
    x, pixel, slope = np.zeros(STATES), np.empty(2), np.empty((2, 3))
    chi2 = 0.0
    for _ in range(4):
        information, push, chi2 = np.eye(3) * 1e-6, np.zeros(3), 0.0
        x[:3] = point
        for n in range(len(pixels)):
            if not see(eyes[n], x, height_scale, pixel, slope):
                return np.inf
            weight = np.linalg.inv(noises[n])
            off = pixels[n] - pixel
            information += slope.T @ weight @ slope
            push += slope.T @ weight @ off
            chi2 += off @ weight @ off
        point += np.linalg.solve(information, push)
    return chi2


@dataclass
class _Memory:
    """What the tracker knows after a sight; kept for late arrivals. Everything in it is replaced, never changed."""

    tracks: tuple[Track, ...] = ()
    sights: tuple[Sight, ...] = ()  # the latest few, for starts
    pairs: tuple[tuple[float, Sight, Sight, Pairs], ...] = ()
    clutter: tuple[float, float] = (0.0, 0.0)  # candidates per image that no track took, slowly forgotten
    finished: tuple[Track, ...] = ()
    raw: tuple[Array | None, Array | None] = (None, None)  # the last candidates of each camera, frozen images included


@dataclass
class Tracker:
    """Feed sights with `add`; read `track`. Times are of exposure, on one clock, in any order within cfg.memory."""

    cfg: TrackerCfg = field(default_factory=TrackerCfg)
    too_late: int = 0  # sights left out because they came later than cfg.memory
    repeats: int = 0  # sights left out because they showed the candidates of the sight before to the last bit: a frozen camera
    _now: _Memory = field(default_factory=_Memory)
    _past: deque[tuple[Sight, _Memory]] = field(default_factory=deque)
    _work: Array = field(default_factory=workspace)
    height_scale: tuple[float, float] = (1.0, 0.0)  # value and sigma for flights that begin from now on

    def __post_init__(self) -> None:
        self.height_scale = (self.cfg.height_scale, self.cfg.height_scale_sigma)

    @property
    def track(self) -> Track | None:
        """The flight given out: confirmed, and the most credible of those; None while there is none."""
        confirmed = [t for t in self._now.tracks if t.confirmed]
        return confirmed[0] if confirmed else None

    @property
    def tracks(self) -> tuple[Track, ...]:
        """All hypotheses, those not confirmed included."""
        return self._now.tracks

    def take_finished(self) -> tuple[Track, ...]:
        """Confirmed flights that ended since the last call."""
        done, self._now = self._now.finished, replace(self._now, finished=())
        return done

    def add(self, sight: Sight) -> Track | None:
        """Take in what one camera reported; returns `track`."""
        if not np.isfinite(sight.time):
            self.too_late += 1
            return self.track
        latest = self._past[-1][0].time if self._past else -np.inf
        if sight.time < latest - self.cfg.memory:
            self.too_late += 1
            return self.track
        again: list[Sight] = []
        key = (sight.time, sight.side)  # left before right where both saw at once, whichever came first
        while self._past and (self._past[-1][0].time, self._past[-1][0].side) > key:
            later, before = self._past.pop()
            again.append(later)
            self._now = replace(before, finished=self._now.finished)
        for one in [sight, *reversed(again)]:
            self._past.append((one, self._now))
            self._now = self._step(one)
        newest = self._past[-1][0].time
        while len(self._past) > 1 and self._past[0][0].time < newest - self.cfg.memory:
            self._past.popleft()
        return self.track

    def _step(self, sight: Sight) -> _Memory:
        now, cfg = self._now, self.cfg
        before, raw = now.raw[sight.side], sight.pixels
        if before is not None and len(raw) and np.array_equal(before, raw):
            self.repeats += 1
            sight = replace(sight, pixels=np.empty((0, 2)), noise=np.empty((0, 2, 2)), sizes=None)
        density = (now.clutter[sight.side] + cfg.clutter_floor) / sight.area
        taken: dict[int, bool] = {}  # candidate: taken by a confirmed track
        tracks = []
        for track in now.tracks:
            moved = self._follow(track, sight, density)
            if moved.newest is not None and moved.newest is not track.newest:
                taken[moved.newest.index] = taken.get(moved.newest.index, False) or moved.confirmed
            tracks.append(moved)
        clutter = list(now.clutter)
        share = 1.0 if before is None else 0.05  # over about 20 images, from the first one on
        clutter[sight.side] += share * (len(sight.pixels) - len(taken) - clutter[sight.side])
        memory = replace(now, tracks=tuple(tracks), sights=(*now.sights[-7:], sight), clutter=(clutter[0], clutter[1]),
                         raw=(now.raw[0], raw) if sight.side else (raw, now.raw[1]))
        memory = self._start(memory, sight, taken)
        return self._judge(memory, sight.time)

    def _noise(self, time: float, born: float) -> float:
        return self.cfg.flip_noise if time - born < self.cfg.flip_time else self.cfg.acceleration_noise

    def _follow(self, track: Track, sight: Sight, density: float) -> Track:
        cfg = self.cfg
        x, cov = track.state.copy(), track.covariance.copy()
        predict(x, cov, sight.time - track.time, self._noise(track.time, track.born), cfg.drift_noise, self._work)
        residual, best = np.empty(2), np.empty(2)
        index, nis, log = _look(x, cov, sight.eye, track.height_scale, sight.pixels, sight.noise, cfg.gate, cfg.soft, residual, best)
        if index >= 0:
            gain = np.log(cfg.detection / density) + log
            hit: Hit | None = Hit(sight, index, nis, best, track.newest)
            seen, hits = sight.time, track.hits + 1
        else:
            wide, high = 2 * sight.eye[14], 2 * sight.eye[15]
            visible = index == -1 and inside(sight.eye, x, track.height_scale, wide, high, 0.0)
            gain = np.log(1 - cfg.detection) if visible else 0.0
            hit, seen, hits = track.newest, track.last_seen, track.hits
        gains = tuple(g for g in track.gains if g[0] > sight.time - cfg.trial - 0.1) + ((sight.time, gain),)
        score = track.score + gain
        after = Track(sight.time, x, cov, track.born, score, seen, hits, hit, track.confirmed, gains, track.start_state, track.start_covariance,
                      track.height_scale, track.height_scale_sigma)
        if not after.confirmed and score >= cfg.confirm and hit is not track.newest and _moves(after, cfg):
            after = replace(after, confirmed=True)
        return after

    def _start(self, memory: _Memory, sight: Sight, taken: dict[int, bool]) -> _Memory:
        """New hypotheses from chains of pairs that no confirmed track explains."""
        free = np.array([c for c in range(len(sight.pixels)) if not taken.get(c, False)], int)
        if not len(free):  # most sights of a flight that is followed in a window
            return memory
        same = [s.time for s in memory.sights if s.side == sight.side]
        half = 0.55 * min((b - a for a, b in pairwise(same) if b > a), default=self.cfg.start.pair_time)  # half a period: the nearest, never the one before
        others = [s for s in memory.sights[:-1] if s.side != sight.side and abs(s.time - sight.time) <= min(half, self.cfg.start.pair_time)]
        if not others:
            return memory
        other = min(others, key=lambda s: abs(s.time - sight.time))
        known = [p for p in memory.pairs if sight.time - p[0] <= self.cfg.start.span]
        used = {id(h.sight): h.index for t in memory.tracks if t.confirmed for h in (t.newest, t.newest.earlier if t.newest else None) if h}
        own = replace(sight, pixels=sight.pixels[free], noise=sight.noise[free], sizes=None if sight.sizes is None else sight.sizes[free])
        rest = np.array([c for c in range(len(other.pixels)) if used.get(id(other)) != c], int)
        far = replace(other, pixels=other.pixels[rest], noise=other.noise[rest], sizes=None if other.sizes is None else other.sizes[rest])
        left, right = (own, far) if sight.side == 0 else (far, own)
        found = pair(left, right, self.cfg.stereo, self.cfg.start.most_pairs, self.height_scale[0])
        known.append((0.5 * (sight.time + other.time), left, right, found))
        memory = replace(memory, pairs=tuple(known))
        tracks = list(memory.tracks)
        for chain in chains(known, self.cfg.start):
            fresh = self._begin([known[n][1:] for n, _ in chain], [m for _, m in chain], memory.clutter)
            if fresh is not None and not any(_same(fresh, t) for t in tracks):
                tracks.append(fresh)
        return replace(memory, tracks=tuple(tracks))

    def _begin(self, frames: list[Any], picks: list[int], clutter: tuple[float, float]) -> Track | None:
        """Filter a chain of pairs from wide priors; None where the pairs are no flight."""
        cfg, (scale, scale_sigma) = self.cfg, self.height_scale
        stretch = np.array([1.0, 1.0, scale])
        first, last = frames[0][2].points[picks[0]] * stretch, frames[-1][2].points[picks[-1]] * stretch
        when = [0.5 * (f[0].time + f[1].time) for f in frames]
        velocity = (last - first) / (when[-1] - when[0])
        looks = sorted(((s, int(index[m])) for f, m in zip(frames, picks, strict=True)
                        for s, index in ((f[0], f[2].left), (f[1], f[2].right))), key=lambda look: look[0].time)
        drift = cfg.drift_prior[0] * min(1.0, float(np.linalg.norm(velocity)) / cfg.drift_speed)
        x = np.array([*first, *velocity, cfg.drag_prior[0], drift])
        born = looks[0][0].time
        x[:3] += velocity * (born - when[0])
        cov = np.diag(np.array([*[cfg.start.position_sigma] * 3, *[cfg.start.velocity_sigma] * 3, cfg.drag_prior[1], cfg.drift_prior[1]]) ** 2)
        track = Track(born, x, cov, born, cfg.new_flight, born, 0, None, False, (), x.copy(), cov.copy(), scale, scale_sigma)
        for one, index in looks:
            alone = replace(one, pixels=one.pixels[index:index + 1], noise=one.noise[index:index + 1])
            before = track.hits
            track = self._follow(track, alone, (clutter[one.side] + cfg.clutter_floor) / one.area)
            if track.hits == before:
                return None
        speed = float(np.linalg.norm(track.state[3:6]))
        if not cfg.start.speed_range[0] <= speed <= cfg.start.speed_range[1] or not np.isfinite(track.covariance).all():
            return None
        return track

    def _judge(self, memory: _Memory, time: float) -> _Memory:
        """End what is over, settle rivals, put the track to give out first."""
        cfg = self.cfg
        alive: list[Track] = []
        ended: list[Track] = []
        for t in memory.tracks:
            quiet = time - t.last_seen
            fine = quiet <= (cfg.coast if t.confirmed else cfg.tentative_coast) and np.isfinite(t.state).all() and t.state[2] > cfg.floor
            fine = fine and (t.confirmed or (t.score > cfg.new_flight - 5.0 and time - t.born <= cfg.prove))
            (alive if fine else ended).append(t)
        confirmed = sorted((t for t in alive if t.confirmed), key=lambda t: t.born)
        while len(confirmed) > 1:
            old, new = confirmed[0], confirmed[1]
            since = max(new.born, time - cfg.trial - 0.1)
            ahead = new.score_since(since) - old.score_since(since)
            if abs(ahead) <= cfg.lead and time - new.born <= cfg.trial:
                break
            loser = old if ahead > 0 else new
            confirmed.remove(loser)
            if loser is old:
                ended.append(old)
        tentative = sorted((t for t in alive if not t.confirmed), key=lambda t: -t.score)[:cfg.most_hypotheses]
        finished = memory.finished + tuple(t for t in ended if t.confirmed)
        return replace(memory, tracks=(*confirmed, *tentative), finished=finished)


def _moves(track: Track, cfg: TrackerCfg) -> bool:
    """Whether a track's candidates are beyond doubt no thing that stays where it is, whatever its filter made of their noise."""
    if not np.linalg.norm(track.state[3:6]) >= cfg.start.speed_range[0]:
        return False
    hits: list[Hit] = []
    hit = track.newest
    while hit is not None and len(hits) < 24:
        hits.append(hit)
        hit = hit.earlier
    eyes, pixels, noise = (np.array(n, float) for n in ([h.sight.eye for h in hits], [h.sight.pixels[h.index] for h in hits],
                                                        [h.sight.noise[h.index] for h in hits]))
    return _still(eyes, pixels, noise, track.state[:3].copy(), track.height_scale) > cfg.moving * (2 * len(hits) - 3)


def _same(a: Track, b: Track) -> bool:
    """Whether two hypotheses took the same last candidates of both cameras."""
    def last_two(track: Track) -> set[tuple[int, float, float, float]]:
        out, hit = set(), track.newest
        for _ in range(2):
            if hit is not None:
                u, v = hit.sight.pixels[hit.index]
                out.add((hit.sight.side, hit.sight.time, float(u), float(v)))
                hit = hit.earlier
        return out

    return last_two(a) == last_two(b)
