// The pages of the menu, in its order. `key` is what follows `g`.
import type { ComponentType } from "preact";
import { AccessPage } from "../pages/access";
import { Alarms } from "../pages/alarms";
import { AuditPage } from "../pages/audit";
import { Bans } from "../pages/bans";
import { ClientPage } from "../pages/client";
import { Clients } from "../pages/clients";
import { Drops } from "../pages/drops";
import { Events } from "../pages/events";
import { Groups } from "../pages/groups";
import { Listeners } from "../pages/listeners";
import { Nodes } from "../pages/nodes";
import { Outlets } from "../pages/outlets";
import { Overview } from "../pages/overview";
import { PeoplePage } from "../pages/people";
import { ProfilePage } from "../pages/profile";
import { Queues } from "../pages/queues";
import { Retained } from "../pages/retained";
import { Settings } from "../pages/settings";
import { Shards } from "../pages/shards";
import { Subscriptions } from "../pages/subscriptions";
import { Top } from "../pages/top";
import { Topics } from "../pages/topics";
import { UserPage } from "../pages/user";

export interface PageEntry {
  page: string;
  title: string;
  group: "Now" | "Clients" | "Messages" | "Access" | "Cluster";
  show: ComponentType;
  key?: string;
  /** Not in the menu: reached from another page, which the menu marks instead. */
  within?: string;
}

export const pages: PageEntry[] = [
  { page: "overview", title: "Overview", group: "Now", show: Overview, key: "o" },
  { page: "alarms", title: "Alarms", group: "Now", show: Alarms, key: "a" },
  { page: "events", title: "Events", group: "Now", show: Events, key: "e" },
  { page: "clients", title: "Clients", group: "Clients", show: Clients, key: "c" },
  { page: "client", title: "Client", group: "Clients", show: ClientPage, within: "clients" },
  { page: "queues", title: "Queues", group: "Clients", show: Queues, key: "q" },
  { page: "drops", title: "Drops", group: "Clients", show: Drops, key: "d" },
  { page: "top", title: "Busiest", group: "Clients", show: Top, key: "w" },
  { page: "topics", title: "Topics", group: "Clients", show: Topics, key: "t" },
  { page: "subscriptions", title: "Subscriptions", group: "Messages", show: Subscriptions, key: "s" },
  { page: "shared-groups", title: "Shared groups", group: "Messages", show: Groups },
  { page: "retained", title: "Retained", group: "Messages", show: Retained, key: "r" },
  { page: "outlets", title: "Outlets", group: "Messages", show: Outlets },
  { page: "access", title: "Users and rules", group: "Access", show: AccessPage, key: "u" },
  { page: "user", title: "User", group: "Access", show: UserPage, within: "access" },
  { page: "people", title: "People & keys", group: "Access", show: PeoplePage, key: "p" },
  { page: "audit", title: "Audit", group: "Access", show: AuditPage, key: "l" },
  { page: "nodes", title: "Nodes", group: "Cluster", show: Nodes, key: "n" },
  { page: "profile", title: "Profile", group: "Cluster", show: ProfilePage, within: "nodes" },
  { page: "shards", title: "Shards", group: "Cluster", show: Shards, key: "h" },
  { page: "listeners", title: "Listeners", group: "Cluster", show: Listeners },
  { page: "settings", title: "Settings", group: "Cluster", show: Settings },
  { page: "bans", title: "Bans", group: "Cluster", show: Bans, key: "b" },
];

export const pageOf = (name: string): PageEntry | undefined => pages.find((entry) => entry.page === name);
