"""`simpleworkflow init`: an example project, written from templates."""
