// What reason codes say [MQTT 5.0, 2.4], and return codes of MQTT 3.1.1.

const codes: Record<number, string> = {
  0: "success",
  1: "granted QoS 1",
  2: "granted QoS 2",
  4: "disconnect with will",
  16: "no matching subscribers",
  17: "no subscription existed",
  128: "unspecified error",
  129: "malformed packet",
  130: "protocol error",
  131: "implementation specific error",
  132: "unsupported protocol version",
  133: "client identifier not valid",
  134: "bad user name or password",
  135: "not authorized",
  136: "server unavailable",
  137: "server busy",
  138: "banned",
  139: "server shutting down",
  140: "bad authentication method",
  141: "keep alive timeout",
  142: "session taken over",
  143: "topic filter invalid",
  144: "topic name invalid",
  145: "packet identifier in use",
  146: "packet identifier not found",
  147: "receive maximum exceeded",
  148: "topic alias invalid",
  149: "packet too large",
  150: "message rate too high",
  151: "quota exceeded",
  152: "administrative action",
  153: "payload format invalid",
  154: "retain not supported",
  155: "QoS not supported",
  156: "use another server",
  157: "server moved",
  158: "shared subscriptions not supported",
  159: "connection rate exceeded",
  160: "maximum connect time",
  161: "subscription identifiers not supported",
  162: "wildcard subscriptions not supported",
};

const before5: Record<number, string> = {
  0: "accepted",
  1: "unacceptable protocol version",
  2: "identifier rejected",
  3: "server unavailable",
  4: "bad user name or password",
  5: "not authorized",
};

const hex = (code: number) => `0x${code.toString(16).padStart(2, "0")}`;

export const reasonWords = (code: number): string => (codes[code] ? `${codes[code]} (${hex(code)})` : hex(code));

export const returnWords = (code: number): string => (before5[code] ? `${before5[code]} (${code})` : String(code));
