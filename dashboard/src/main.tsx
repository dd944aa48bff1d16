import { render } from "preact";
import { listen } from "./parts/keys";
import { lookWhoIsSignedIn } from "./api/session";
import { Shell } from "./parts/shell";

listen();
void lookWhoIsSignedIn();
render(<Shell />, document.body);
