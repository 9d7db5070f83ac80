"""What the README says is what the score card says, and its links lead somewhere."""

import json
import re
from pathlib import Path

from policy import SHIPPED

ROOT = Path(__file__).parent.parent


def test_readme_shows_the_figures_of_the_score_card():
    readme = (ROOT / "README.md").read_text()
    card = json.loads((SHIPPED.parent / "scores.json").read_text())
    drill, moved, as_hit = card["eval"], card["play"], card["as_hit"]
    for shown in (f"{drill['hit_rate']:.1%}", f"{drill['median_position_error_m'] * 100:.1f} cm", f"{drill['median_velocity_error_mps']:.2f} m/s",
                  f"{drill['fall_rate']:.2%}", f"{drill['over_speed_rate']:.3%}", f"{moved['touched_rate']:.1%}", f"{moved['returned_rate']:.1%}",
                  f"{as_hit['touched_rate']:.1%}", f"{as_hit['returned_rate']:.1%}", f"commit {card['commit']}", f"{card['minutes']} minutes"):
        assert shown in readme, shown
    assert "@" not in re.sub(r"\S+@\S+\.\S+", "", readme)


def test_links_between_documents_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("sim/models/*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_verb_and_option_named_in_the_documents_exists():
    import inspect

    from perception import verbs as perception_verbs
    from policy import verbs
    from ros_nodes import verbs as ros_verbs

    functions = {"train": verbs.train, "play": verbs.play, "eval": verbs.evaluate, "replay": verbs.replay, "export": verbs.export, "bench": verbs.bench, "robots": verbs.robots,
                 "track": perception_verbs.track, "calibrate": perception_verbs.calibrate, "up": ros_verbs.up, "ros": ros_verbs.ros}
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        for verb, rest in re.findall(r"birdie (train|play|eval|replay|export|bench|robots|track|calibrate|up|ros)\b([^`\n]*)", page.read_text()):
            known = {p.replace("_path", "").replace("_", "-") for p in inspect.signature(functions[verb]).parameters}
            for option in re.findall(r"--([a-z-]+)", rest):
                assert option.removeprefix("no-") in known, f"{page.name}: birdie {verb} --{option}"
