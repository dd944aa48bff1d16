// Asking before something is done. The button names the deed; Enter never confirms what deletes.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { problemOf, type Problem } from "../api/api";
import { visible } from "../words/format";
import { Failed } from "./notices";
import { may, type Role } from "../api/session";

interface DialogProps {
  title: string;
  close(): void;
  children: ComponentChildren;
}

export function Dialog({ title, close, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    const element = dialog.current!;
    element.showModal();
    // What is below an open dialog takes no focus.
    return () => {
      element.close();
      before?.focus();
    };
  }, []);
  // Browsers close a dialog at the second Esc, whatever the page says to it.
  return (
    <dialog
      ref={dialog}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onClose={() => {
        if (dialog.current?.isConnected && !dialog.current.open) dialog.current.showModal();
      }}
    >
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  deed: string;
  danger?: boolean;
  /** What has to be typed before the deed can be done. */
  typed?: string | null;
  disabled?: boolean;
  act(): Promise<unknown>;
  close(): void;
  children: ComponentChildren;
}

export function Confirm({ title, deed, danger, typed, disabled, act, close, children }: ConfirmProps) {
  const [text, setText] = useState("");
  const [doing, setDoing] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const cancel = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => cancel.current?.focus(), []);
  const ready = !disabled && !doing && (typed == null || text === typed);
  const primary = useRef<HTMLButtonElement>(null);
  // What deletes nothing may be confirmed by Enter, once it is known what it would cost.
  useLayoutEffect(() => {
    if (ready && !danger && document.activeElement === cancel.current) primary.current?.focus();
  }, [ready]);
  async function confirmed() {
    setDoing(true);
    try {
      await act();
      close();
    } catch (error) {
      setProblem(problemOf(error));
      setDoing(false);
    }
  }
  return (
    <Dialog title={title} close={close}>
      {children}
      {typed != null && (
        <label class="field">
          <span>
            Type <strong class="foreign">{visible(typed).slice(0, 200)}</strong> to confirm
          </span>
          <input
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
            autocomplete="off"
            spellcheck={false}
          />
        </label>
      )}
      {problem && <Failed problem={problem} />}
      <div class="buttons">
        <button type="button" ref={cancel} onClick={close}>
          Cancel
        </button>
        <button
          type="button"
          ref={primary}
          class={danger ? "danger" : "primary"}
          disabled={!ready}
          onClick={confirmed}
          onKeyDown={(event) => {
            if (event.repeat) event.preventDefault();
          }}
        >
          {deed}
        </button>
      </div>
    </Dialog>
  );
}

/** A button that the role may not have. `unless`: why it can do nothing at present. */
export function Action({
  needs,
  children,
  onClick,
  disabled,
  unless,
  quiet,
}: {
  needs: Role;
  children: ComponentChildren;
  onClick(): void;
  disabled?: boolean;
  unless?: string | null;
  quiet?: boolean;
}) {
  const allowed = may(needs);
  return (
    <button
      type="button"
      class={quiet ? "row-action" : undefined}
      disabled={!allowed || disabled || unless != null}
      title={allowed ? (unless ?? undefined) : `needs ${needs}`}
      onClick={onClick}
    >
      {children}
    </button>
  );
}
