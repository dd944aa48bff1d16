import { render } from "preact";
import { listen } from "./keys";
import { lookWhoIsSignedIn } from "./session";
import { Shell } from "./shell";

listen();
void lookWhoIsSignedIn();
render(<Shell />, document.body);
