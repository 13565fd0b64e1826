"""Why a run stands where it stands: a picture from the database becomes a reason, a sentence and details."""
