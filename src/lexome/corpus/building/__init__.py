"""From files of literature to records: what is read, what is dropped and why, what stays."""
