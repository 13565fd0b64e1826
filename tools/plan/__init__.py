"""The plan of the house: what stands in the source, on which floor, and which arrows lead where."""
