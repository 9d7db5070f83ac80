"""The badminton court, in the world frame: origin on the floor under the middle of the net, x to the opponent's side.

Sizes from the BWF laws of badminton, law 1 (13.40 x 6.10 m, singles 5.18 m, net 1.524 m in the middle, 1.55 m at posts).
"""

import numpy as np
from numba import njit

HALF_LENGTH = 6.70  # [m] net to back line
HALF_WIDTH_DOUBLES = 3.05  # [m]
HALF_WIDTH_SINGLES = 2.59  # [m]
SHORT_SERVICE = 1.98  # [m] from the net
LONG_SERVICE_DOUBLES = 0.76  # [m] from the back line
LINE_WIDTH = 0.04  # [m] lines belong to the field they bound; the sizes above reach their outer edge
NET_MIDDLE, NET_POST = 1.524, 1.55  # [m] height of the tape
HOME_X = -4.0  # [m] where the robot waits: 4 m from the net, our choice, middle of its half

Array = np.ndarray


@njit(cache=True)
def net_height(y):
    """Height of the tape at y [m]; straight from the middle to the posts on the doubles lines."""
    return NET_MIDDLE + (NET_POST - NET_MIDDLE) * min(abs(y) / HALF_WIDTH_DOUBLES, 1.0)


def is_in(x: Array, y: Array, doubles: bool = True) -> Array:
    """Whether shuttles landing at (x, y) [m] are in on the opponent's side. Lines are in."""
    side = np.asarray(x)
    width = HALF_WIDTH_DOUBLES if doubles else HALF_WIDTH_SINGLES
    return (side > 0) & (side <= HALF_LENGTH) & (np.abs(y) <= width)
