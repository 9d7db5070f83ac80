"""The badminton task for N robots at once: physics, shuttles, commands, rewards and episodes, in numpy arrays.

No torch, no Gymnasium: training wraps it in `policy/vec_env.py`, evaluation and play drive it directly, and the registered
single environment in `policy/gym_env.py` is this class with N = 1.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from perception.flight import fly
from policy.contract import PolicyContract
from policy.observations import RobotState, Sense, Sighting, SwingCommand, build_observation, sense, term_specs
from policy.perceive import Perception, PerceptionCfg
from policy.rewards import FALL, Transition, Widths, total_reward
from policy.swings import Swings
from policy.symmetry import VECTOR, SignedPermutation, action_mirror, observation_mirror, target_side
from sim.batch import BatchPhysics
from sim.kinematics import RacketState
from sim.randomize import RandomizeCfg, draw
from sim.robot import Robot
from sim.shuttle import INCOMING, RacketSweep, Shuttles

Array = np.ndarray

ACTION_CLIP = 6.0  # beyond it the joint ranges end anyway; keeps one wild sample from becoming a wild target
OBSERVATION_CLIP = 6.0  # standard deviations
FALL_TILT = np.cos(np.deg2rad(66))  # of the base; training-recipe value
CRITIC_EXTRA = 28  # numbers that only the critic sees, see BadmintonTask._critic_extra
CRITIC_SIGHT = 7  # more of them where robots see for themselves


@dataclass(frozen=True)
class TaskCfg:
    """swings: per episode; joint_noise, arm_noise [rad], place_noise [m], yaw_noise [rad]: half widths at a reset; randomize:
    how robots differ, drawn anew for each episode, None for all alike; perception: what robots see with, None for robots without cameras;
    told_of_sight: whether the policy is told what its camera detects, None: where there is one; weights: of rewards, where they are not those of
    the table in `rewards.py`, by name."""

    swings: int = 5
    joint_noise: float = 0.1
    arm_noise: float = 0.4
    place_noise: float = 0.2
    yaw_noise: float = 0.1
    randomize: RandomizeCfg | None = None
    perception: PerceptionCfg | None = None
    told_of_sight: bool | None = None
    weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def sees(self) -> bool:
        """Whether the policy is told what its camera detects."""
        return self.perception is not None if self.told_of_sight is None else self.told_of_sight


@dataclass
class Step:
    """What one step gave. observation (N, A + C): actor and critic parts, after resets; terminal_observation: rows
    of the robots that are done, before their reset; reward, terminated, truncated, blown (N,), the last True where something was not
    finite; the strike_* arrays describe the robots struck (ids) at this step, from the true racket."""

    observation: Array
    reward: Array
    terminated: Array
    truncated: Array
    terminal_observation: Array
    blown: Array
    struck: Array  # ids
    strike_position_error: Array
    strike_velocity_error: Array
    strike_cosine: Array
    strike_seen: Array  # (n,) of those strikes: the robot knew what it saw, else it was told
    arm_current: Array  # (N,) drawn by the arm at the last physics step [A]
    load: Array  # (N,) the same in shares of the limit
    watched: tuple[Array, Array, Array] | None  # see `rewards.Transition`
    reward_terms: dict[str, Array]  # (N,) each, weighted
    faults: dict[str, Array]  # ids of robots by what was not finite: "physics", "observation" or "reward"; empty when all is well

    @property
    def done(self) -> Array:
        """(N,) episodes that ended now."""
        return self.terminated | self.truncated


def contract_of(robot: Robot, period: float, sees: bool = False) -> PolicyContract:
    """The contract a policy for this robot is trained under; sees: its policy is told what the camera detects."""
    return PolicyContract(
        robot=robot.name, joint_names=robot.joint_names, default_pose=robot.default_pose,
        action_offset=robot.default_pose + robot.standing_offset, action_scale=robot.action_scale, action_clip=ACTION_CLIP,
        joint_range=robot.joint_range, kp=robot.per_joint("kp"), kd=robot.per_joint("kd"),
        torque_limit=robot.per_joint("torque"), mirror_index=robot.mirror_index, mirror_sign=robot.mirror_sign,
        arm_index=robot.arm_index, chain=robot.chain, scale=robot.scale, period=period,
        observation=term_specs(len(robot.joint_names), len(robot.arm_index), sees), observation_clip=OBSERVATION_CLIP,
    )


class BadmintonTask:
    """N robots on N courts. next_swings(ids) is asked for the swings of robots ids whenever they need new ones.

    Each robot always holds two swings, the current and the next, since the critic may look ahead. The strike lies on a
    control step, and the shuttle of a swing flies on through the wait of the next one.
    """

    def __init__(self, robot: Robot, count: int, next_swings: Callable[[Array], Swings], seed: int = 0, threads: int = 0,
                 cfg: TaskCfg = TaskCfg(), widths: Widths | None = None) -> None:
        self.robot, self.count, self.cfg = robot, count, cfg
        self.next_swings = next_swings
        self.widths = widths or Widths()
        self.rng = np.random.default_rng(seed)
        self.physics = BatchPhysics(robot, count, threads)
        self._trunk = robot.model.body(robot.base_body).id
        self.randomize = cfg.randomize
        self._push_in = np.full(count, -1)
        self.contract = contract_of(robot, self.physics.period, cfg.sees)
        self.perception = Perception(robot, count, self.physics.period, cfg.perception, seed + 1) if cfg.perception else None
        self._number = 0  # of the control step, the clock that perception lives by
        self.shuttles = Shuttles(count)
        self._mirror_obs, self._mirror_action = observation_mirror(self.contract), action_mirror(self.contract)
        signs = VECTOR[1] * 7 + [1] * (CRITIC_EXTRA - 21) + (VECTOR[1] + [1] * (CRITIC_SIGHT - 3) if self.perception else [])
        self._mirror_extra = SignedPermutation(np.arange(len(signs)), np.array(signs, np.float32))
        self.actor_size = sum(t.size for t in self.contract.observation)
        self.observation_size = self.actor_size + len(signs)
        joints = len(robot.joint_names)
        self._leg = np.ones(joints, bool)
        self._leg[robot.arm_index] = False
        self.speed_limit = robot.per_joint("speed")
        self.current, self.upcoming = Swings.idle(count), Swings.idle(count)
        self.wait, self.countdown = np.zeros(count, int), np.zeros(count, int)
        self.swing_number = np.zeros(count, int)
        self.side = np.ones(count)
        self.previous_action = np.zeros((count, joints))
        self.blown_total = 0
        self._knew = np.zeros(count, bool)
        self.sense: Sense
        self.racket: RacketState  # the true faces; sense.racket is what the robot believes
        self.drive_speed = np.zeros((count, joints))

    # -- episode bookkeeping ------------------------------------------------------------------------------------------
    def reset(self) -> Array:
        """Start all robots anew; returns observations (N, A + C)."""
        everyone = np.arange(self.count)
        self._restart(everyone)
        self._look()
        self._foot_before = np.full((self.count, len(self.robot.feet), 3), np.nan)
        return self._observe(everyone)

    def _restart(self, ids: Array) -> None:
        """Robots ids back on their feet near home, with fresh swings."""
        n, c = len(ids), self.cfg
        if self.randomize is not None:
            variation = draw(self.randomize, self.robot, self.rng, n)
            self.physics.vary(ids, variation)
            self.shuttles.wind[ids], self.shuttles.restitution[ids] = variation.wind, variation.restitution
            self._push_in[ids] = np.round(self.rng.random(n) * variation.push_every / self.physics.period)
        noise = np.where(self._leg, c.joint_noise, c.arm_noise)
        q = self.robot.default_pose + self.rng.uniform(-1, 1, (n, len(noise))) * noise
        q = np.clip(q, self.robot.joint_range[:, 0], self.robot.joint_range[:, 1])
        place = np.zeros((n, 3))
        place[:, :2] = self.rng.uniform(-c.place_noise, c.place_noise, (n, 2))
        place[:, 2] = self.robot.standing_height + 0.01
        self.physics.reset(ids, place, self.rng.uniform(-c.yaw_noise, c.yaw_noise, n), q)
        self.previous_action[ids] = 0.0
        self.swing_number[ids] = 0
        if self.perception:
            self.perception.restart(ids)
        self.shuttles.clear(ids)
        self.current.put(ids, self.next_swings(ids))
        self.upcoming.put(ids, self.next_swings(ids))
        self._begin(ids)

    def _begin(self, ids: Array) -> None:
        """Start the current swing of robots ids: its wait, or at once its command."""
        self.wait[ids] = self.current.wait[ids]
        self.countdown[ids] = self.current.time[ids]
        if self.perception:
            self.perception.forget(ids)
        self._show(ids[self.wait[ids] == 0])

    def give(self, ids: Array, swings: Swings) -> None:
        """Replace the current swings of robots ids that have nothing to hit; the new ones must start with a wait."""
        self.current.put(ids, swings)
        self._begin(ids)

    def _show(self, ids: Array) -> None:
        """The commands of robots ids become known: note their side and send off shuttles that are already due."""
        if len(ids) == 0:
            return
        told = ids if self.perception is None else ids[~self.current.seen[ids]]
        position = self.physics.qpos[told, :3] - self.physics.home
        yaw = _yaw(self.physics.qpos[told, 3:7])
        self.side[told] = target_side(position, yaw, self.current.position[told])
        self._launch(ids[self.countdown[ids] == self.current.launch[ids]])

    def _launch(self, ids: Array) -> None:
        if len(ids):
            c = self.current
            if self.perception:
                self.perception.start(ids)
                c.position[ids[c.seen[ids]]] = self._true_meeting(ids[c.seen[ids]])
            self.shuttles.launch(ids, c.shuttle_position[ids], c.shuttle_velocity[ids], c.drag[ids], c.drift[ids], c.tag[ids],
                                 self.rng)

    def _true_meeting(self, ids: Array) -> Array:
        """(n, 3) where the shuttles of robots ids will be at the commanded moment, relative to home: the wind moves them off the plan."""
        c, wind = self.current, self.shuttles.wind[ids]
        if len(ids) == 0:
            return np.zeros((0, 3))
        path = fly(c.shuttle_position[ids], c.shuttle_velocity[ids] - wind, c.drag[ids], c.drift[ids], self.physics.period,
                   int(c.launch[ids].max()) + 1)
        flight = c.launch[ids]
        return path[np.arange(len(ids)), flight, :3] + wind * (flight * self.physics.period)[:, None] - self.physics.home

    # -- state as the policy sees it ----------------------------------------------------------------------------------
    def robot_state(self) -> RobotState:
        """All robots as they report themselves: exactly, but for the bias of their joint encoders."""
        p = self.physics
        return RobotState(p.qpos[:, :3] - p.home, p.qpos[:, 3:7], p.qvel[:, :3], p.qvel[:, 3:6], p.encoder, p.qd)

    def _look(self) -> None:
        """Derive what the new state means, once per step."""
        self.sense = self._sense()
        self.racket = self.sense.racket if self.randomize is None else self.physics.racket()

    def true_command(self) -> SwingCommand:
        """The current commands as they are."""
        c = self.current
        return SwingCommand(c.position, c.normal, c.velocity, self.countdown * self.physics.period, self.wait == 0)

    def command(self) -> SwingCommand:
        """The current commands as the robots know them: of a shuttle that has to be seen, nothing until it was."""
        true, c, p = self.true_command(), self.current, self.perception
        if p is None or not c.seen.any():
            return true
        position = np.where(c.seen[:, None], p.place - self.physics.home, c.position)
        left = np.where(c.seen, np.maximum(p.when - self._number * self.physics.period, 0.0), true.time_left)
        return SwingCommand(position, c.normal, c.velocity, left, true.active & (~c.seen | p.known))

    def sighting(self) -> Sighting | None:
        """Where the robots' cameras saw the shuttles last."""
        p = self.perception
        return None if p is None else Sighting(p.shuttle - self.physics.home, p.seen)

    def _sense(self, ids: Array | None = None) -> Sense:
        state, command, sighting = self.robot_state(), self.command(), self.sighting()
        previous = self.previous_action
        if ids is not None:
            state = RobotState(*(v[ids] for v in vars(state).values()))
            command = SwingCommand(*(v[ids] for v in vars(command).values()))
            previous = previous[ids]
            sighting = sighting and Sighting(sighting.position[ids], sighting.detected[ids])
        return sense(self.contract, state, command, previous, sighting)

    def _observe(self, ids: Array, s: Sense | None = None) -> Array:
        """Observations of robots ids, actor and critic parts, seen from the side of their target."""
        s = s if s is not None else self._sense(ids)
        actor = self._mirror_obs.where(build_observation(s), self.side[ids])
        extra = self._mirror_extra.where(self._critic_extra(ids, s), self.side[ids])
        return np.concatenate([actor, extra], axis=1)

    def _critic_extra(self, ids: Array, s: Sense) -> Array:
        """(n, CRITIC_EXTRA): the next swing, the true shuttle and what this robot is like; court axes, relative to the base,
        vectors first, so that they turn over in the mirror."""
        nxt, base, v, trunk = self.upcoming, s.state.position, self.physics.variation, self._trunk
        flying = (self.shuttles.phase[ids] == INCOMING)[:, None]
        shuttle = self.shuttles.position[ids] - self.physics.home - base
        # the observation after an episode's last strike is read as that of its last swing: it is only used to bootstrap
        number = np.minimum(self.swing_number[ids], self.cfg.swings - 1)
        last = (number == self.cfg.swings - 1)[:, None]
        return np.concatenate([
            (nxt.position[ids] - base) * ~last, 0.2 * nxt.velocity[ids] * ~last, shuttle * flying,
            0.1 * self.shuttles.velocity[ids] * flying, 20 * v.trunk_com[ids], 20 * (self.racket.position[ids] - s.racket.position),
            self.shuttles.wind[ids],
            (self.wait[ids] * self.physics.period)[:, None],
            (0.5 * (nxt.wait + nxt.time)[ids] * self.physics.period)[:, None],
            (self.cfg.swings - 1 - number)[:, None] / self.cfg.swings,
            np.stack([v.ground_friction[ids] - 1, 5 * (v.link_mass[ids, trunk] - 1), 5 * (v.strength[ids].mean(axis=1) - 1),
                      50 * v.delay[ids]], axis=1),
            *self._critic_sight(ids, s),
        ], axis=1, dtype=np.float32)

    def _critic_sight(self, ids: Array, s: Sense) -> list[Array]:
        """For the critic of robots that see: how wrong the interception is that they believe, the true time left, and what they know."""
        p = self.perception
        if p is None:
            return []
        c, active = self.current, (self.wait[ids] == 0)
        known = active & (~c.seen[ids] | p.known[ids])
        left = self.countdown[ids] * self.physics.period
        return [(c.position[ids] - s.command.position) * known[:, None],
                np.stack([np.minimum(left, 2.5) * active, active, known, p.in_view[ids]], axis=1)]

    def rackets(self) -> RacketSweep:
        """The faces now, world frame."""
        r = self.racket
        return RacketSweep(r.position + self.physics.home, r.velocity, r.normal, r.long_axis)

    # -- one control step ---------------------------------------------------------------------------------------------
    def step(self, action: Array) -> Step:
        """Advance one control step with policy outputs (N, J), as given by the policy for the observation it saw."""
        n = self.count
        action = self._mirror_action.where(np.clip(np.nan_to_num(action), -ACTION_CLIP, ACTION_CLIP), self.side)
        before = self.rackets()
        if self.randomize is not None:
            self._push()
        blown = self.physics.step(self.contract.joint_targets(action))
        if blown.any():
            # put back on its feet before anything reads it; it ends its episode below and is counted
            self.blown_total += int(blown.sum())
            self._restart(np.flatnonzero(blown))
        active = (self.wait == 0) & ~blown
        self.countdown -= active
        self.wait -= (self.wait > 0) & ~blown
        previous, self.previous_action = self.previous_action, np.where(blown[:, None], 0.0, action)
        self._number += 1
        if self.perception:  # shuttles first: the camera sees them where they are now
            self.racket = self.physics.racket()
            self.shuttles.step(before, self.rackets(), self.physics.period)
            self._see()
            self._look()
        else:
            self._look()
            self.shuttles.step(before, self.rackets(), self.physics.period)
        s = self.sense
        struck = active & (self.countdown == 0)

        self.drive_speed = self.physics.drive_speed()
        current = self.physics.supply
        foot = self.physics.foot
        low = self.contract.scale.foot_down
        down = (foot[:, :, 2] < low) & (self._foot_before[:, :, 2] < low)
        slide = np.sum((foot - self._foot_before)[:, :, :2] ** 2, axis=2) / self.physics.period**2
        slip = np.sum(np.where(down, np.minimum(slide, 1.0), 0.0), axis=1)
        self._foot_before = foot
        command = s.command if self.perception is None else self.true_command()
        watched = None
        if self.perception:
            off = np.linalg.norm(command.position - s.command.position, axis=1)
            watched = (active & self.current.seen & (self.shuttles.phase == INCOMING), s.command.active, off)
        transition = Transition(s, command, watched, self.racket, action, previous, struck, self.physics.torque, self.drive_speed, slip, self.speed_limit,
                                self._leg, self.widths)
        reward, terms = total_reward(transition, self.cfg.weights)
        fallen = (-s.gravity_b[:, 2] < FALL_TILT) | (s.state.position[:, 2] < self.contract.scale.fall_height)
        reward += FALL * fallen
        faults = {"physics": blown, "reward": ~np.isfinite(reward) & ~blown}
        sick = faults["physics"] | faults["reward"]
        reward[sick] = 0.0
        struck &= ~sick
        ids = np.flatnonzero(struck)
        strike = (transition.position_error[ids], transition.velocity_error[ids], transition.normal_cosine[ids], self.current.seen[ids])

        terminated = fallen | sick
        self.swing_number[ids] += 1
        truncated = struck & (self.swing_number >= self.cfg.swings) & ~terminated
        onward = np.flatnonzero(struck & ~terminated)
        self.current.put(onward, self.upcoming.take(onward))
        self.upcoming.put(onward, self.next_swings(onward))
        self._begin(onward)
        appeared = np.flatnonzero(active & ~struck & (self.countdown == self.current.launch))
        self._launch(appeared)
        shown = np.flatnonzero(~active & ~blown & (self.wait == 0))
        self._show(shown)

        observation = self._observe(np.arange(n), s)
        changed = np.union1d(onward, shown)
        if len(changed):
            observation[changed] = self._observe(changed)
        faults["observation"] = ~np.isfinite(observation.sum(axis=1)) & ~sick
        if faults["observation"].any():
            sick |= faults["observation"]
            reward[sick] = 0.0
            terminated, truncated = terminated | sick, truncated & ~sick
            well = ~sick[ids]
            ids, strike = ids[well], (strike[0][well], strike[1][well], strike[2][well], strike[3][well])
        terminal = np.zeros((0, self.observation_size), np.float32)
        done = np.flatnonzero(terminated | truncated)
        if len(done):
            terminal = observation[done]
            self._restart(np.flatnonzero((terminated | truncated) & ~blown))
            observation[done] = self._observe(done)
            self._foot_before[done] = np.nan
            self._look()
        return Step(observation, reward.astype(np.float32), terminated, truncated, terminal, sick, ids, *strike, current, current / self.robot.arm_current_limit, watched,
                    terms,
                    {name: np.flatnonzero(rows) for name, rows in faults.items() if rows.any()})

    def _see(self) -> None:
        """Every robot's camera exposes, and what arrives from an earlier exposure is taken in. The side of a target is settled when it
        becomes known, by what the robot believes."""
        assert self.perception is not None
        p, s = self.physics, self.shuttles
        self.perception.step(self._number * p.period, p.qpos[:, :3], self.racket.base_rotation, p.qvel[:, :3], p.qvel[:, 3:6],
                             s.position, s.velocity, (s.phase == INCOMING) & (self.wait == 0), self.current.position[:, 2])
        newly = np.flatnonzero(self.perception.known & ~self._knew & self.current.seen)
        if len(newly):
            self.side[newly] = target_side(p.qpos[newly, :3] - p.home, _yaw(p.qpos[newly, 3:7]), self.perception.place[newly] - p.home)
        self._knew = self.perception.known.copy()

    def _push(self) -> None:
        """Shove the bases of robots whose time has come."""
        self._push_in -= 1
        due = np.flatnonzero(self._push_in == 0)
        v = self.physics.variation
        self.physics.qvel[due, :2] += self.rng.uniform(-1, 1, (len(due), 2)) * v.push_limit[due, None]
        self._push_in[due] = np.maximum(np.round(v.push_every[due] / self.physics.period), 1)


def _yaw(quaternion: Array) -> Array:
    w, x, y, z = quaternion.T
    return np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
