"""The command line: one verb, one function. The verbs themselves are in `policy/verbs.py`, `policy/bench_verb.py`, `perception/verbs.py` and `ros_nodes/verbs.py`."""

import os
import sys

# Two threads that spin while they wait starve each other on a busy machine (tenfold seen); these must be set before torch loads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")


def main() -> None:
    """Entry point of `birdie`."""
    import tyro

    from perception import verbs as perception_verbs
    from perception.errors import UserError
    from policy import bench_verb, verbs
    from ros_nodes import verbs as ros_verbs

    table = {"train": verbs.train, "play": verbs.play, "eval": verbs.evaluate, "replay": verbs.replay, "export": verbs.export,
             "bench": bench_verb.bench, "robots": verbs.robots, "track": perception_verbs.track,
             "calibrate": perception_verbs.calibrate, "up": ros_verbs.up, "ros": ros_verbs.ros}
    try:
        tyro.extras.subcommand_cli_from_dict(
            table, prog="birdie", description="Train, play and measure a quadruped with an arm that plays badminton.",
            config=(tyro.conf.OmitArgPrefixes,))
    except UserError as error:
        print(f"birdie: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("birdie: stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
