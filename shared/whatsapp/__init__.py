"""Meta's wire, pure: what is sent, what comes back, what its errors mean."""
