"""Identity, bundles, metrics, verdicts and the warehouse that they land in."""
