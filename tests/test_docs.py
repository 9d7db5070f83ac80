"""What the README says is what the score card says, and its links lead somewhere."""

import json
import re
from pathlib import Path

from policy import SHIPPED

ROOT = Path(__file__).parent.parent


def test_readme_shows_the_score_card_as_it_is_generated():
    from policy.readme_card import updated

    readme = (ROOT / "README.md").read_text()
    card = json.loads((SHIPPED.parent / "scores.json").read_text())
    assert updated(readme, card) == readme, "the README's tables are not those of scores.json: python -m policy.readme_card --text"
    assert f"{card['eval']['hit_rate']:.1%}" in readme and f"{card['card']['level2']['hit']['rate']:.1%}" in readme
    assert "@" not in re.sub(r"\S+@\S+\.\S+", "", readme)


def test_links_between_documents_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("sim/models/*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_verb_and_option_named_in_the_documents_exists():
    import inspect

    from perception import verbs as perception_verbs
    from policy import bench_verb, verbs
    from ros_nodes import verbs as ros_verbs

    functions = {"train": verbs.train, "play": verbs.play, "eval": verbs.evaluate, "replay": verbs.replay, "export": verbs.export, "bench": bench_verb.bench, "robots": verbs.robots,
                 "track": perception_verbs.track, "calibrate": perception_verbs.calibrate, "up": ros_verbs.up, "ros": ros_verbs.ros}
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        for verb, rest in re.findall(r"birdie (train|play|eval|replay|export|bench|robots|track|calibrate|up|ros)\b([^`\n]*)", page.read_text()):
            names = {"begin": "from", "end": "to"} if verb == "replay" else {}
            known = {names.get(p, p).replace("_path", "").replace("_", "-") for p in inspect.signature(functions[verb]).parameters}
            for option in re.findall(r"--([a-z-]+)", rest):
                assert option.removeprefix("no-") in known, f"{page.name}: birdie {verb} --{option}"
