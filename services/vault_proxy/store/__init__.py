"""What the vault proxy keeps: sealed secrets, what they belong to, and the audit trail."""
