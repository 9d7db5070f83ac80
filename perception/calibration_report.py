"""Report page of a calibration: one HTML file, pictures inside, to be read before the rig is used."""

import base64
import html
import io
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from perception.calibration import LEAST_COVER, LEAST_TILT, Calibration, covered, rectified
from perception.errors import UserError

Array = np.ndarray

GOOD_ROWS = 0.3  # [px] row error above which the page warns: at 5 m and 370 px focal length, 0.1 px of disparity is 6 cm of depth
GOOD_RATIO = 1.5  # held-out over fitted row error above which it warns: the fit then follows its own views, take more
_STYLE = ("body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}img{max-width:100%}"
          "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .9em .2em 0;text-align:left;"
          "border-bottom:1px solid #ddd}"
          "td.n{text-align:right;font-variant-numeric:tabular-nums}.ok{color:#176b2c}.bad{color:#a33200}h2{margin-top:1.6em}")


def _picture(figure: Any) -> str:
    from matplotlib import pyplot

    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110, bbox_inches="tight")
    pyplot.close(figure)
    return f'<img src="data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}">'


def _errors(c: Calibration, pyplot: Any) -> Any:
    figure, axes = pyplot.subplots(figsize=(9.5, 3), layout="constrained")
    places = np.arange(len(c.views.names))
    rows = ((c.view_errors[:, 0], "left", "tab:blue"), (c.view_errors[:, 1], "right", "tab:orange"),
            (c.row_errors, "rows", "tab:green"))
    for shift, (values, label, colour) in zip((-0.27, 0.0, 0.27), rows, strict=True):
        axes.bar(places + shift, values, 0.25, label=label, color=colour)
    axes.axhline(c.stereo_rms, color="gray", linewidth=1, linestyle="--")
    axes.set_xticks(places, c.views.names, rotation=90 if len(places) > 20 else 0)
    axes.set(xlabel="view", ylabel="rms [px]")
    axes.legend(ncols=3)
    return figure


def _coverage(c: Calibration, pyplot: Any) -> Any:
    figure, axes = pyplot.subplots(1, 2, figsize=(9.5, 3.9), layout="constrained", sharey=True)
    width, height = c.views.size
    for axis, side, corners in zip(axes, ("left", "right"), (c.views.left, c.views.right), strict=True):
        axis.imshow(covered(corners, c.views.size), extent=(0, width, height, 0), cmap="Greens", vmin=0, vmax=2.5)
        spots = axis.scatter(*corners.reshape(-1, 2).T, c=np.abs(c.row_residuals).ravel(), s=6, cmap="viridis", vmin=0,
                             vmax=float(np.percentile(np.abs(c.row_residuals), 99)))
        axis.set(title=f"{side}: {covered(corners, c.views.size).mean():.0%} covered", xlim=(0, width), ylim=(height, 0),
                 xlabel="u [px]")
    axes[0].set_ylabel("v [px]")
    figure.colorbar(spots, ax=axes, label="row error [px]", shrink=0.8)
    return figure


def rectified_images(c: Calibration, view: int) -> tuple[Array, Array]:
    """Left and right grey image (H, W) of a view, turned to common rows."""
    parallel, *turns = rectified(c.rig)
    out = []
    for path, camera, turn in zip(c.views.paths[view], (c.rig.left, c.rig.right), turns, strict=True):
        image = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_GRAYSCALE)
        maps = cv2.initUndistortRectifyMap(camera.matrix, camera.coefficients, turn, parallel.left.matrix, c.views.size,
                                           cv2.CV_32FC1)
        out.append(np.asarray(cv2.remap(np.asarray(image), maps[0], maps[1], cv2.INTER_LINEAR)))
    return out[0], out[1]


def _rows(c: Calibration, pyplot: Any) -> Any:
    worst = int(np.argmax(c.row_errors))
    figure, axes = pyplot.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained", sharey=True)
    for axis, image, side in zip(axes, rectified_images(c, worst), ("left", "right"), strict=True):
        axis.imshow(image, cmap="gray")
        for row in np.linspace(0, image.shape[0], 14)[1:-1]:
            axis.axhline(row, color="tab:green", linewidth=0.7)
        axis.set(title=f"{side}, view {c.views.names[worst]}", xticks=[], yticks=[])
    return figure


def verdicts(c: Calibration) -> list[tuple[bool, str]]:
    """(good, sentence) for what a person should look at."""
    cover = [covered(x, c.views.size).mean() for x in (c.views.left, c.views.right)]
    return [
        (c.row_error_rms <= GOOD_ROWS,
         f"Rows match to {c.row_error_rms:.3f} px rms after rectification (good: {GOOD_ROWS:g} and less)."),
        (c.held_out_rms <= GOOD_RATIO * c.row_error_rms,
         f"On views that the fit had not seen: {c.held_out_rms:.3f} px (good: less than {GOOD_RATIO:g} times)."),
        (min(cover) >= 1.5 * LEAST_COVER,
         f"Boards covered {cover[0]:.0%} and {cover[1]:.0%} of the images; where none was, distortion is a guess."),
        (min(c.tilt) >= 1.5 * LEAST_TILT, f"The board was tilted by up to {min(c.tilt):.0f} degrees between views."),
        (max(c.focal_sigma) <= 0.002 * c.rig.left.fx, f"Focal lengths are known to {max(c.focal_sigma):.2f} px."),
    ]


def write_report(c: Calibration, path: Path) -> None:
    """Write the page. Raises UserError where matplotlib is missing."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise UserError("the report needs matplotlib: run `make setup-train`, or pip install 'birdie[train]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    cameras = ((name, *(f"{getattr(x, key):.2f}" for key in ("fx", "fy", "cx", "cy")),
                " ".join(f"{d:+.4f}" for d in x.distortion)) for name, x in (("left", c.rig.left), ("right", c.rig.right)))
    table = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in cameras)
    turn, _ = cv2.Rodrigues(c.rig.right_from_left_rotation)
    angles = ", ".join(f"{x:+.2f}" for x in np.rad2deg(np.ravel(turn)))
    place = ", ".join(f"{x * 1000:+.1f}" for x in c.rig.right_from_left_translation)
    missing = c.views.skipped
    skipped = f" The board was not found in {len(missing)} more: {html.escape(', '.join(missing))}." if missing else ""
    width, height = c.views.size
    judged = "".join(f'<li class="{"ok" if good else "bad"}">{"good" if good else "look"}: {html.escape(text)}</li>'
                     for good, text in verdicts(c))
    board = c.views.board
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"""<!doctype html><html lang="en"><meta charset="utf-8">
<title>Calibration of {html.escape(c.rig.name)}</title><style>{_STYLE}</style>
<h1>Calibration of {html.escape(c.rig.name)}</h1>
<p>{len(c.views.names)} views of a {board.columns}x{board.rows} board with {board.square * 1000:g} mm squares,
{width} x {height} px.{skipped}
Left alone {c.mono_rms[0]:.3f} px rms, right alone {c.mono_rms[1]:.3f}, pair <b>{c.stereo_rms:.3f}</b>,
rows <b>{c.row_error_rms:.3f}</b>;
baseline {c.rig.baseline * 1000:.1f} mm, as true as the size of the squares.</p>
<ul>{judged}</ul>
<h2>Error of every view</h2><p>Reprojection in each camera, and difference of rows after rectification. One bar that sticks out
is a board that moved between the two exposures, or blur. The dashed line is the rms of all.</p>{_picture(_errors(c, pyplot))}
<h2>Where the boards were</h2><p>Corners of all views, coloured by row error. White parts were never covered.</p>
{_picture(_coverage(c, pyplot))}
<h2>Rectified, the view with the largest row error</h2><p>Every line must cross the same corners left and right.</p>
{_picture(_rows(c, pyplot))}
<h2>The rig</h2><table><tr><th>camera</th><th>fx</th><th>fy</th><th>cx</th><th>cy</th><th>k1 k2 p1 p2 k3</th></tr>{table}</table>
<p>Right from left: rotation vector {angles} degrees, translation {place} mm.</p></html>
""")
