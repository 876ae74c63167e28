"""Models as a service: one queue of work for all clients, bounds on everything, and a page to try it on."""
