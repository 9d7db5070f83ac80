"""Names, quality of service and layouts of everything that nodes say to each other. Names are relative: a robot's namespace goes in front.

| topic | type | what |
|---|---|---|
| joint_states, imu/data, odom | JointState, Imu, Odometry | the robot, REP 145; odom's twist is in the base frame |
| joint_command | JointState | to the drives: position [rad], then `<joint>/gains` entries whose position and velocity are kp and kd; frame_id is the supervisor's state, stamp that of the robot state it answers |
| policy/command | JointState | targets [rad] of the policy's joints; stamp as above |
| policy/trace | Float64MultiArray | what the policy saw and did, see TRACE |
| policy/strike | Odometry | the strike it is at: stamp is its time, pose the racket's (x axis: normal), twist its velocity in that pose's frame |
| strike | the same | a strike asked for directly, where the policy's parameter `command_source` is strike |
| shuttle/detection | PoseArray | candidates of one exposure in the left camera's optical frame [m]; none: nothing was seen |
| shuttle/flight | Float64MultiArray | the tracker's whole state, see FLIGHT; also sent while there is no flight |
| shuttle/track, shuttle/interception | Odometry | for tools: the shuttle now, and where it comes down through the robot's height (stamp: when), both with covariance |
| shuttle/path | Path | the way there |
| camera/{left,right}/image_raw, camera_info | Image, CameraInfo | bgr8, rectified |
| safety/state | String, latched | JSON: state, armed, faults, the last transition |
| safety/estop, operator/heartbeat | Bool, Header | stop now; alive (stamp advances), frame_id says why to stop, empty if not |
"""

from rclpy.duration import Duration
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

JOINTS, IMU, ODOM, CLOCK = "joint_states", "imu/data", "odom", "/clock"
DRIVES, DRIVE_MODE = "joint_command", "drives/mode"
COMMAND, TRACE_TOPIC, STRIKE_NOW, STRIKE = "policy/command", "policy/trace", "policy/strike", "strike"
DETECTION, FLIGHT_TOPIC, TRACK, INTERCEPTION, PATH = "shuttle/detection", "shuttle/flight", "shuttle/track", "shuttle/interception", "shuttle/path"
IMAGES, INFOS = ("camera/left/image_raw", "camera/right/image_raw"), ("camera/left/camera_info", "camera/right/camera_info")
SAFETY, ESTOP, HEARTBEAT, JOY = "safety/state", "safety/estop", "operator/heartbeat", "joy"
OUTCOME, DIAGNOSTICS, LATENCY = "sim/outcome", "/diagnostics", "latency"
GAINS = "/gains"  # suffix of the gain entries of a joint_command

# FLIGHT: exposure (sec, nsec), arrival of the detection at the tracker (sec, nsec), 1.0 where there is a flight, its birth [s],
# state (8,), covariance (64,)
FLIGHT_SIZE = 2 + 2 + 2 + 8 + 64
# TRACE: stamps (sec, nsec) of the joint_states, odom and imu used and of the flight (-1, 0: none), the side, then observation and action
TRACE_HEAD = 9


def _qos(reliable: bool, depth: int, latched: bool = False, deadline: float = 0.0) -> QoSProfile:
    profile = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=depth,
                         reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
                         durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE)
    if deadline:
        profile.deadline = Duration(seconds=deadline)
    return profile


SENSOR_OUT = _qos(True, 5)  # reliable, so that RViz and MoveIt may listen; nodes listen with SENSOR_IN, which matches both kinds
SENSOR_IN = _qos(False, 5)
COMMANDS = _qos(False, 1)  # the newest or nothing: an old command is worse than none
EVENTS = _qos(True, 20)
STATE = _qos(True, 1, latched=True)
PICTURES = _qos(True, 5)
FLIGHTS = _qos(True, 20)
