"""`simpleworkflow top`: a live view of counts, rates, lateness and workers."""
