"""Who is who between the processes of an installation: certificates, and who may call what."""
