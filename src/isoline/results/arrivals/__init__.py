"""What comes to the store from outside: folders, archives of untrusted jobs, stores in S3."""
