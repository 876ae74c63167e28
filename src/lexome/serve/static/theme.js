// Applies the stored theme before the first paint; the default is the system's.
"use strict";

{
  const root = document.documentElement;
  try {
    const kept = localStorage.getItem("lexome-theme");
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  } catch {
    // Storage may be blocked: use the system's theme.
  }
}
