// The button that switches between the system's theme, light and dark; theme.js applies what is kept.

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
      // Storage may be forbidden; the choice then lasts as long as the page.
    }
    tell();
  });
  tell();
}
