"""SkillService and SkillVersionService: what they say on the wire."""
