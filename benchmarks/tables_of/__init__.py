"""The tables of README and docs, a module for each family; its TABLES has each under the name that pages give it."""
