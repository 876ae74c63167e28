"""Office documents: PDF, DOCX and XLSX."""
