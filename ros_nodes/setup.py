"""This folder as an ament_python package, for `colcon build` beside a pip-installed birdie. `pip install` of the whole uses ../pyproject.toml."""

from glob import glob

from setuptools import setup

NAME = "ros_nodes"
NODES = ("sim_robot_node", "perception_node", "policy_node", "safety_node", "operator_node", "recorder_node", "bag_player_node")

if __name__ == "__main__":
    setup(
        name=NAME,
        version="0.1.0",
        packages=[NAME],
        package_dir={NAME: "."},
        package_data={NAME: ["config/*"]},
        data_files=[
            ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
            (f"share/{NAME}", ["package.xml"]),
            (f"share/{NAME}/launch", glob("launch/*.launch.py")),
            (f"share/{NAME}/config", glob("config/*")),
        ],
        zip_safe=True,
        maintainer="birdie",
        maintainer_email="birdie@users.noreply.github.com",
        license="Apache-2.0",
        entry_points={"console_scripts": [f"{node} = {NAME}.{node}:main" for node in NODES]},
    )
