"""From what a camera knows of a flight to the command of the policy, control step by control step. Runs on the robot: no MuJoCo, no torch."""

from dataclasses import dataclass, field

import numpy as np

from perception.interception import FlightNoise, at_height, forecast
from policy.contract import PolicyContract
from policy.observations import SwingCommand
from policy.strike import Strike, plan_strike
from policy.symmetry import target_side
from sim.court import HOME_X

Array = np.ndarray
RETURN_PLACE = (2.2, 0.0)  # [m] court: where the return is sent; our choice, the middle of the far side's front half
HORIZON = 2.5  # [s] flights that come down later are not looked at yet; the longest human shot takes 2.0 s
AGAIN = 0.3  # [s] after a strike in which what comes down is the shuttle just missed; our choice, nobody hits back that fast


@dataclass(frozen=True, eq=False)
class Flight:
    """A flight as known at `time` [s]: state (8,) and covariance (8, 8) of `perception/filter.py`, court axes."""

    time: float
    state: Array
    covariance: Array


def strike_for_flight(flight: Flight, now: float, delay: int, period: float, height: float, noise: FlightNoise,
                      sure: float) -> tuple[int, Strike, Array] | None:
    """Control steps to the strike, the strike (of one robot, court frame) and the sigmas (3,) [m] of its place, as known at time `now` [s];
    None while the place is not known to `sure` [m], or where nothing can be hit.

    delay: control steps until the command becomes known. The strike lies on a control step, so the shuttle is met where it is then.
    """
    crossing = at_height(flight.time, flight.state, flight.covariance, height, HORIZON, noise)
    if crossing is None or np.sqrt(np.linalg.eigvalsh(crossing.covariance[:3, :3])[-1]) > sure:
        return None
    steps = round((crossing.time - now) / period) - delay
    if steps < 1:
        return None
    state, _ = forecast(flight.time, flight.state, flight.covariance, now + (steps + delay) * period, noise)
    strike = plan_strike(state[None, :3], state[None, 3:6], np.array([RETURN_PLACE]), state[6:7], state[7:8])
    return (steps, strike, np.sqrt(np.diag(crossing.covariance)[:3])) if strike.feasible[0] else None


@dataclass(frozen=True)
class CommanderCfg:
    """sure [m]: a command is given once the meeting place is known to this (largest sigma), later flights improve it. Of 100 serves in lock-step the
    racket came within 10 cm of the strike in 87, 89 and 87 with 0.3, 0.6 and 1.2, and the robot fell 1, 0 and 2 times. noise: of flights between the camera's last look and the strike."""

    sure: float = 0.6
    noise: FlightNoise = field(default_factory=FlightNoise)


class Commander:
    """One robot's command. Ask it once per control step, in the order of time; the same flights and states give the same commands."""

    def __init__(self, contract: PolicyContract, cfg: CommanderCfg = CommanderCfg()) -> None:
        self.contract, self.cfg = contract, cfg
        self.home = np.array([HOME_X, 0.0, 0.0])
        self.side = np.ones(1)
        self.strike: Strike | None = None
        self.strike_at = -np.inf  # [s]
        self._planned = -np.inf  # time of the flight that the strike was planned from

    def reset(self) -> None:
        """Nothing to hit."""
        self.strike, self.strike_at, self._planned = None, -np.inf, -np.inf

    def command(self, now: float, flight: Flight | None, position: Array, yaw: float) -> SwingCommand:
        """The command at `now` [s] for a base at position (3,) [m, relative to home] heading yaw [rad]."""
        period = self.contract.period
        if self.strike is not None and self.strike_at - now < 0.5 * period:  # the swing is over
            self.strike = None
        if flight is not None and flight.time > self._planned:
            self._plan(now, flight, position, yaw)
        if self.strike is None:
            zero = np.zeros((1, 3))
            return SwingCommand(zero, np.array([[1.0, 0.0, 0.0]]), zero.copy(), np.full(1, period), np.zeros(1, bool))
        left = np.array([self.strike_at - now])
        return SwingCommand(self.strike.position - self.home, self.strike.normal, self.strike.velocity, left, np.ones(1, bool))

    def give(self, now: float, strike: Strike, strike_at: float, position: Array, yaw: float) -> SwingCommand:
        """A strike from somebody else, at a time [s]; inactive once that has passed. The side is settled when it is first given."""
        fresh = self.strike is None or strike_at != self.strike_at
        self.strike, self.strike_at = strike, strike_at
        if fresh:
            self.side = target_side(position[None], np.array([yaw]), strike.position - self.home)
        return self.command(now, None, position, yaw)

    def _plan(self, now: float, flight: Flight, position: Array, yaw: float) -> None:
        scale = self.contract.scale
        self._planned = flight.time
        if flight.state[3] >= 0.0:  # it flies away from us
            return
        told = strike_for_flight(flight, now, 0, self.contract.period, scale.meet_height, self.cfg.noise, self.cfg.sure)
        if told is None:
            return
        steps, strike, _ = told
        place = strike.position - self.home
        if abs(place[0, 0]) > scale.far_x or abs(place[0, 1]) > scale.far_y:  # too far to be tried, as in `birdie play`
            return
        if self.strike is None:
            if now + steps * self.contract.period < self.strike_at + AGAIN:
                return
            self.side = target_side(position[None], np.array([yaw]), place)
        self.strike, self.strike_at = strike, now + steps * self.contract.period
