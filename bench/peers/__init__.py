"""Other engines beside ours: how to install them, how to drive each of them, and who drives the drivers."""
