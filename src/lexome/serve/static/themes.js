// The button that switches between system, light and dark theme; theme.js applies the stored one.

const NEXT = { system: "light", light: "dark", dark: "system" };

export function themeButton(button) {
  const root = document.documentElement;
  const tell = () => (button.textContent = `Theme: ${root.dataset.theme ?? "system"}`);
  button.addEventListener("click", () => {
    const theme = NEXT[root.dataset.theme ?? "system"];
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    try {
      localStorage.setItem("lexome-theme", theme);
    } catch {
      // Storage may be blocked: the choice then lasts as long as the page.
    }
    tell();
  });
  tell();
}
