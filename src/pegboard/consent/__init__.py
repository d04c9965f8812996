"""consent: stores people's answers, so that each approval is used once."""
