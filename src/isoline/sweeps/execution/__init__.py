"""From a plan to sealed bundles: the scheduler, launches, points."""
