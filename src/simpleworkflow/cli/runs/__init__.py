"""Commands about single runs: start, list, show, watch, explain and change them."""
