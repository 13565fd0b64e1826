"""What the tests share: servers, clocks and other scaffolding that is no part of the product."""
