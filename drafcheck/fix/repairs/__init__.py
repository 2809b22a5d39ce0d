"""One module a family of rules: what mends a finding. Each is declared with ``@repair`` and imported by name."""
