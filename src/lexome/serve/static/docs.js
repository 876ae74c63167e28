// Swagger UI of this service, with its files from this server: nothing is loaded from elsewhere.

const form = document.getElementById("token-form");
let token = "";

const authorization = () => (token ? { Authorization: `Bearer ${token}` } : {});

/** Show the description of the API, or ask for the token that it needs. */
async function show() {
  const response = await fetch("openapi.json", { headers: authorization() });
  form.hidden = response.status !== 401;
  document.getElementById("error").textContent = token && response.status === 401 ? "This is not the token." : "";
  if (!response.ok) return;
  window.SwaggerUIBundle({
    spec: await response.json(),
    domNode: document.getElementById("api"),
    validatorUrl: null,
    requestInterceptor: (request) => {
      Object.assign(request.headers, authorization());
      return request;
    },
  });
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  token = document.getElementById("token").value.trim();
  show();
});

show();
