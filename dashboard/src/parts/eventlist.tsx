import { showTime } from "../api/clock";
import { plural, visible, words } from "../words/format";
import { Empty } from "./notices";
import { useEvents } from "../api/events";
import { Table } from "./table";
import { ClientLink, TopicLink } from "./text";

const states = {
  opening: "Connecting to the event stream.",
  waiting: "Another tab of this browser shows live events. They appear here when that tab is closed or hidden.",
  unavailable: "This broker does not provide live events.",
  broken: "The event stream was interrupted. Reconnecting.",
  live: "Live: new events appear at the top.",
};

export function EventList({ query }: { query: Record<string, string | undefined> }) {
  const stream = useEvents(query);
  return (
    <>
      <p class="soft small">
        {states[stream.state]}
        {stream.gaps[0] &&
          ` ${visible(stream.gaps[0].node_name)} no longer has ${stream.gaps[0].count === null ? "some events" : plural(stream.gaps[0].count, "event")} of this time.`}
      </p>
      {stream.state === "live" && stream.events.length === 0 && <Empty>No events yet.</Empty>}
      {stream.events.length > 0 && (
        <Table
          label="Events"
          open
          rows={stream.events}
          keyOf={(event) => `${event.node} ${event.seq}`}
          columns={[
            { head: "Time", width: 12, cell: (event) => <time title={event.at}>{showTime(event.at)}</time> },
            { head: "Event", width: 22, cell: (event) => words(event.type.replace(".", " ")) },
            { head: "Node", width: 11, cell: (event) => visible(event.node_name ?? "") },
            {
              head: "Client",
              width: 26,
              cell: (event) => event.client_id !== null && <ClientLink id={event.client_id} most={24} />,
            },
            {
              head: "Topic",
              width: 28,
              cell: (event) => event.topic !== null && <TopicLink topic={event.topic} most={26} />,
            },
            {
              head: "Why",
              cell: (event) =>
                visible(
                  [
                    event.reason && words(event.reason),
                    event.detail,
                    event.count !== null && event.count > 1 ? plural(event.count, "time") : null,
                  ]
                    .filter(Boolean)
                    .join(" · "),
                ),
            },
          ]}
        />
      )}
    </>
  );
}
