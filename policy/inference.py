"""The policy at run time: an ONNX file, its contract, and from measured state to joint targets. No torch, no MuJoCo."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from perception.errors import UserError
from policy import SHIPPED
from policy.contract import PolicyContract
from policy.observations import RobotState, Sighting, SwingCommand, build_observation, sense
from policy.symmetry import action_mirror, observation_mirror

METADATA_CONTRACT, METADATA_TRAINING = "birdie_contract", "birdie_training"
Array = np.ndarray


class OnnxPolicy:
    """An exported policy. contract: what it was trained under; training: steps, minutes, commit and settings of its run.

    One onnxruntime thread: on a robot more would starve the control loop, and the network is too small to gain.
    """

    def __init__(self, path: Path = SHIPPED) -> None:
        if not path.is_file():
            raise UserError(f"no policy file {path}; train one (birdie train) and export it (birdie export), or check the path")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            metadata = self._session.get_modelmeta().custom_metadata_map
            contract, training = metadata[METADATA_CONTRACT], metadata[METADATA_TRAINING]
        except KeyError as error:
            raise UserError(f"{path} is an ONNX file without a birdie contract; export it with birdie export") from error
        except Exception as error:  # onnxruntime's exceptions share no public base class
            raise UserError(f"{path} cannot be read as a policy: {str(error).splitlines()[0]}") from error
        self.path = path
        self.contract = PolicyContract.from_json(contract)
        self.training: dict[str, Any] = json.loads(training)
        wanted, given = sum(t.size for t in self.contract.observation), self._session.get_inputs()[0].shape[1]
        if wanted != given:
            raise UserError(f"{path}: its contract lists {wanted} observations, its network takes {given}")
        self.observation_mirror = observation_mirror(self.contract)
        self.action_mirror = action_mirror(self.contract)

    def __call__(self, observation: Array) -> Array:
        """Actions (N, J), before offset and scale, for observations (N, A) float32."""
        return self._session.run(["action"], {"observation": np.ascontiguousarray(observation, np.float32)})[0]

    def act(self, state: RobotState, command: SwingCommand, previous_action: Array, side: Array,
            sighting: Sighting | None = None) -> tuple[Array, Array]:
        """From measured state to (joint targets (N, J) [rad], action (N, J) to hand back as previous_action).

        side (N,): `symmetry.target_side` at the moment the command appeared; sighting: what the camera saw, for a policy that sees.
        """
        return self.decide(self.observe(state, command, previous_action, side, sighting), side)

    def observe(self, state: RobotState, command: SwingCommand, previous_action: Array, side: Array, sighting: Sighting | None = None) -> Array:
        """What the network is given, (N, A) float32, mirrored where side (N,) is -1; arguments as in `act`."""
        return self.observation_mirror.where(build_observation(sense(self.contract, state, command, previous_action, sighting)), side)

    def decide(self, observation: Array, side: Array) -> tuple[Array, Array]:
        """(joint targets (N, J) [rad], action (N, J)) for what `observe` gave, for the same side."""
        action = np.clip(self.action_mirror.where(self(observation), side), -self.contract.action_clip, self.contract.action_clip)
        return self.contract.joint_targets(action), action
