"""ROS 2 nodes: the same policy against the simulator or a robot. Only this folder imports rclpy; its pure rooms do without."""
