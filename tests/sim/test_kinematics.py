"""Our racket kinematics against MuJoCo's."""

import mujoco
import numpy as np

from sim.kinematics import damped_least_squares, racket_state


def test_place_velocity_normal_and_jacobian_match_mujoco(any_robot, rng):
    m, d = any_robot.model, mujoco.MjData(any_robot.model)
    site = m.site(any_robot.racket_site).id
    for _ in range(20):
        d.qpos[:] = rng.normal(size=m.nq)
        d.qpos[3:7] /= np.linalg.norm(d.qpos[3:7])
        d.qvel[:] = rng.normal(size=m.nv) * 3
        mujoco.mj_forward(m, d)
        arm = any_robot.arm_index
        r = racket_state(any_robot.chain, d.qpos[None, :3], d.qpos[None, 3:7], d.qvel[None, :3], d.qvel[None, 3:6],
                         d.qpos[any_robot.qpos_index[arm]][None], d.qvel[any_robot.qvel_index[arm]][None])
        jac = np.zeros((3, m.nv))
        mujoco.mj_jacSite(m, d, jac, None, site)
        frame = d.site_xmat[site].reshape(3, 3)
        np.testing.assert_allclose(r.position[0], d.site_xpos[site], atol=1e-9)
        np.testing.assert_allclose(r.velocity[0], jac @ d.qvel, atol=1e-9)
        np.testing.assert_allclose(r.normal[0], frame[:, 2], atol=1e-9)
        np.testing.assert_allclose(r.long_axis[0], -frame[:, 0], atol=1e-9)
        np.testing.assert_allclose(r.jacobian[0], jac[:, any_robot.qvel_index[arm]], atol=1e-9)


def test_damped_least_squares_solves_its_normal_equations(rng):
    jacobian, error = rng.normal(size=(30, 3, 6)), rng.normal(size=(30, 3))
    step = damped_least_squares(jacobian, error, 0.03)
    for j, e, s in zip(jacobian, error, step, strict=True):
        np.testing.assert_allclose(s, j.T @ np.linalg.solve(j @ j.T + 0.03 * np.eye(3), e), atol=1e-10)
