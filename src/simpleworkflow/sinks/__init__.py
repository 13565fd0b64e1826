"""Where events go when they leave: CloudEvents, and the places that take them. Nothing here knows the database."""
