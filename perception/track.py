"""What a track is, and the settings by which `tracker.py` makes one."""

from dataclasses import dataclass, field

import numpy as np

from perception.flight import DRAG_MEAN
from perception.start import StartCfg
from perception.triangulation import Sight, StereoCfg

Array = np.ndarray


@dataclass(frozen=True)
class TrackerCfg:
    """Priors, noises and rules of the tracker.

    drag_prior, drift_prior: mean and sigma of k [1/m] and s [m/s^2], of 55 flights by people (see `flight.py`). Slow shots
    spin less: their s rises in proportion to the speed at the start up to drift_speed [m/s] (measured medians 0.38, 0.61 and
    0.70 at 9 to 20, 20 to 30 and 30 to 50 m/s).
    acceleration_noise, flip_noise: white acceleration [m/s^2/sqrt(Hz)] in flight, and in the first flip_time [s] after a hit,
    while the shuttle turns over; drift_noise: random walk of s [m/s^2/sqrt(s)]. Set so that the mean NIS on recorded rallies
    is what the candidates' noise says.
    gate: chi-square (two freedoms) of one camera's candidate, 13.8 is passed by 99.9 % of Gaussian ones; soft: beyond this the
    candidate's noise is raised by chi-square / soft, since labels and blobs have longer tails than a Gaussian (Huber's idea).
    detection: chance that a camera reports a shuttle that is in its image.
    clutter_floor: false candidates per image taken for granted even where none were seen.
    confirm: score at which a track is given out; 20 is odds of 5e8 to one: 200 false candidates a frame make
    thousands of chains, and 14 let one of them through in three seconds.
    moving: chi-square, over its freedoms, that a track's candidates must have as images of one point at rest to be given out:
    noise, of depth above all, must not pass for speed. A thing at rest has 1, a shuttle of 5 m/s a hundred.
    prove: [s] after its birth in which a track must be confirmed: a filter can bend a thing that lies still into a slow flight,
    but not for long.
    new_flight: log-odds of a new flight beginning at any exposure, before looking: one in a thousand.
    coast, tentative_coast: [s] without a candidate after which a track, and one not yet confirmed, ends.
    trial: [s] that old and new hypothesis run side by side after a hit; lead: difference of scores that settles it sooner.
    memory: [s] of late arrival that is made good by filtering again; older exposures are left out and counted.
    most_hypotheses: kept at once; our choice, trades time in clutter against late starts.
    height_scale, height_scale_sigma: true over the rig's own heights, and how well that is known. Rigs calibrated on a board
    are metric: (1, 0). Rigs calibrated on court lines are good to 3 %, see `height_scale.py`.
    """

    stereo: StereoCfg = field(default_factory=StereoCfg)
    start: StartCfg = field(default_factory=StartCfg)
    drag_prior: tuple[float, float] = (DRAG_MEAN, 0.012)
    drift_prior: tuple[float, float] = (0.7, 0.25)
    drift_speed: float = 28.0
    acceleration_noise: float = 0.16
    flip_noise: float = 5.0
    flip_time: float = 0.1
    drift_noise: float = 0.1
    gate: float = 25.0
    soft: float = 5.0
    detection: float = 0.9
    clutter_floor: float = 0.2
    confirm: float = 20.0
    moving: float = 4.0
    prove: float = 0.15
    new_flight: float = -6.9
    coast: float = 0.3
    tentative_coast: float = 0.06
    trial: float = 0.08
    lead: float = 5.0
    floor: float = -0.3
    memory: float = 0.2
    most_hypotheses: int = 16
    height_scale: float = 1.0
    height_scale_sigma: float = 0.0


@dataclass(frozen=True, eq=False)
class Hit:
    """A candidate that a hypothesis took: its sight, index, NIS (two freedoms) and residual [px]; `earlier` is the one before."""

    sight: Sight
    index: int
    nis: float
    residual: Array
    earlier: "Hit | None" = field(repr=False)  # a flight is a chain of hundreds


@dataclass(frozen=True, eq=False)
class Track:
    """A flight: time [s] of the state (8,) and covariance (8, 8), see `filter.py`; born [s] at its first candidate; score;
    last_seen [s]; hits taken; the start state it was filtered from, for filtering again; height_scale it is filtered with, and its sigma."""

    time: float
    state: Array
    covariance: Array
    born: float
    score: float
    last_seen: float
    hits: int
    newest: Hit | None
    confirmed: bool
    gains: tuple[tuple[float, float], ...]  # (time, score gained) of the last trial span
    start_state: Array
    start_covariance: Array
    height_scale: float = 1.0
    height_scale_sigma: float = 0.0

    def score_since(self, time: float) -> float:
        """Score gained after `time` [s], as far back as the trial span reaches."""
        return sum(gain for t, gain in self.gains if t >= time)
