"""What `simpleworkflow doctor` examines: one file for each area, findings.py for what is found, examine.py for all."""
