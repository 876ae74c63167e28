// Light or dark before the first paint; without a choice of the reader's, as the system has it.
"use strict";

{
  const root = document.documentElement;
  try {
    const kept = localStorage.getItem("lexome-theme");
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  } catch {
    // Storage may be forbidden; the system's theme it is.
  }
}
