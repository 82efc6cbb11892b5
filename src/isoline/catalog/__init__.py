"""Facts about models, engines, SKUs and pools, and the reading of the YAML that people edit."""
