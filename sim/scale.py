"""How large the task is for a robot: every length and speed of it that depends on the robot's size, in one place.

The recipe was found on anymal_dynaarm. Each number below is a share of that robot's standing height, arm length, foot radius or
swing speed, chosen so that this robot keeps the number the recipe was found with; that the shares suit robots of other sizes is
our choice. Results are rounded to the centimetre, which is all that they mean. Numpy-free and MuJoCo-free: it travels in the
policy's contract to the robot.
"""

from dataclasses import dataclass
from math import sqrt

GRAVITY = 9.81  # [m/s^2]


@dataclass(frozen=True)
class TaskScale:
    """Lengths [m] and speeds [m/s] of the task for one robot; heights are above the floor unless said otherwise."""

    standing_height: float  # of the base in the default pose
    base_height: float  # from which the policy counts the base's height: standing, sunk a little into the legs
    low_base: float  # base height below which the robot crouches
    fall_height: float  # base height that counts as a fall
    foot_down: float  # height of a foot's centre below which it carries
    reach: float  # horizontal shoulder-to-target distance within which no step is needed
    walk_from: float  # that distance beyond which the base is asked to step
    walk_speed: float  # of the base, the most that is asked for
    no_step: float  # from home to a target, on the floor plan, that needs no step
    box_x: float  # half size of the box of targets around home, fore and aft
    box_y: float  # the same sideways
    far_x: float  # from home, beyond which play leaves a shot
    far_y: float
    strike_low: float  # lowest target above the standing base
    strike_high: float  # highest
    meet_height: float  # at which play meets a falling shuttle
    swing_speed: float  # of the racket in a scripted swing
    ik_damping: float  # [m^2] of the arm's inverse kinematics; larger is smoother near the stretched arm

    @property
    def strike_middle(self) -> float:
        """Middle of the targets' heights above the standing base [m]."""
        return 0.5 * (self.strike_low + self.strike_high)


def task_scale(standing_height: float, shoulder: float, arm_length: float, foot_radius: float, swing_speed: float) -> TaskScale:
    """The task for a robot whose base stands at standing_height [m], its shoulder that far above the base [m], whose arm measures
    arm_length [m] from shoulder to racket centre with all links in one line, on feet of foot_radius [m], and whose racket
    reaches swing_speed [m/s].

    In brackets what comes out for anymal_dynaarm: 0.615, 0.2305, 1.497, 0.03 m and 12 m/s.
    """

    def metres(value: float) -> float:
        return round(value, 2)

    return TaskScale(
        standing_height=standing_height,
        base_height=metres(0.975 * standing_height),  # [0.60] soft legs give about that much under load
        low_base=metres(0.73 * standing_height),  # [0.45]
        fall_height=metres(0.49 * standing_height),  # [0.30] knees folded, trunk nearly on the floor
        foot_down=round(4 / 3 * foot_radius, 4),  # [0.04] a third of its radius above its rest
        reach=metres(0.5 * arm_length),  # [0.75] half the stretched arm
        walk_from=metres(0.434 * arm_length),  # [0.65] steps begin a little before the reach ends
        walk_speed=metres(0.326 * sqrt(GRAVITY * standing_height)),  # [0.80] of the same Froude number for all
        no_step=metres(0.668 * arm_length),  # [1.00]
        box_x=metres(0.4 * arm_length),  # [0.60]
        box_y=metres(0.668 * arm_length),  # [1.00]
        far_x=metres(0.735 * arm_length),  # [1.10] a little more than the widest targets of training
        far_y=metres(1.135 * arm_length),  # [1.70]
        strike_low=metres(shoulder + 0.447 * arm_length),  # [0.90] a third over the shoulder: a high forehand
        strike_high=metres(shoulder + 0.781 * arm_length),  # [1.40] with something left to stretch sideways
        meet_height=metres(standing_height + shoulder + 0.637 * arm_length),  # [1.80] just above the middle of the targets
        swing_speed=swing_speed,
        ik_damping=round(0.0134 * arm_length**2, 4),  # [0.03] the Jacobian's square grows with the square of the arm
    )
