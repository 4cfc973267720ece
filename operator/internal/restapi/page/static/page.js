// What the page does beyond its forms and links: live updates, and a question before it stops
// anything. What comes from servers is only ever text.
"use strict";
(() => {
	const $ = id => document.getElementById(id);
	const status = $("status");
	const say = words => { if (status) status.textContent = words; };

	// How long something has been so, to a minute.
	function ago(since) {
		const minutes = Math.max(0, Math.floor((Date.now() - Date.parse(since)) / 60000));
		if (minutes < 1) return "for less than a minute";
		if (minutes < 60) return `for ${minutes} min`;
		if (minutes < 2880) return `for ${Math.floor(minutes / 60)} h ${minutes % 60} min`;
		return `for ${Math.floor(minutes / 1440)} days`;
	}

	function tick() {
		for (const time of document.querySelectorAll("time[data-since]")) {
			time.hidden = !time.dateTime;
			if (time.dateTime) time.textContent = ago(time.dateTime);
		}
	}
	tick();
	setInterval(tick, 15000);
	// A page that the browser kept has no stream any more.
	addEventListener("pageshow", event => { if (event.persisted) location.reload(); });

	// fill shows a server in its row, or in the part of its own page.
	function fill(root, server) {
		const focused = document.activeElement;
		root.dataset.tone = server.tone;
		for (const part of root.querySelectorAll("[data-f]")) {
			const words = String(server[part.dataset.f] ?? "");
			if (part.textContent !== words) part.textContent = words;
			const optional = part.closest("[data-opt]");
			if (optional) optional.hidden = words === "";
		}
		for (const time of root.querySelectorAll("time[data-since]")) time.dateTime = server.since;
		for (const part of root.querySelectorAll("[data-if]")) part.hidden = !server[part.dataset.if];
		// Who was on a button that goes keeps a place to go on from.
		if (focused && root.contains(focused) && focused.closest("[hidden]")) {
			root.querySelector("[data-if]:not([hidden]) button, a")?.focus();
		}
		tick();
	}

	// Streams come back by themselves unless they are refused: then the sentence is shown, and it is
	// tried again later.
	function listen(path, handlers) {
		let refused = false;
		const source = new EventSource(path);
		source.onopen = () => {
			if (refused) say("");
			refused = false;
			document.documentElement.dataset.live = "yes";
		};
		for (const [name, handle] of Object.entries(handlers)) {
			source.addEventListener(name, event => handle(JSON.parse(event.data), source));
		}
		source.onerror = () => {
			delete document.documentElement.dataset.live;
			if (source.readyState !== EventSource.CLOSED) return;
			fetch(path, { headers: { Accept: "text/event-stream" } }).then(async answer => {
				if (answer.ok) { answer.body?.cancel(); return "Live updates stopped, and begin again."; }
				return `No live updates: ${(await answer.text()).trim()}`;
			}).catch(() => "No live updates: Dormouse does not answer.").then(words => {
				say(words);
				refused = true;
				setTimeout(() => listen(path, handlers), 10000);
			});
		};
		addEventListener("pagehide", () => source.close());
	}

	const states = new Map();
	function announce(server) {
		const before = states.get(server.id);
		states.set(server.id, server.state);
		if (before !== undefined && before !== server.state) say(`${server.name} is ${server.state}.`);
		return before !== undefined && before !== server.state;
	}

	const table = $("servers");
	if (table) {
		const body = table.tBodies[0];
		const rowOf = id => body.querySelector(`tr[data-id="${Number(id)}"]`);
		const empty = () => {
			table.hidden = body.rows.length === 0;
			$("none").hidden = body.rows.length > 0;
		};
		const make = server => {
			const row = $("row").content.firstElementChild.cloneNode(true);
			row.dataset.id = server.id;
			row.querySelector("a.name").href = `/page/servers/${Number(server.id)}`;
			for (const form of row.querySelectorAll("form")) form.action = `/page/servers/${Number(server.id)}/${form.dataset.do}`;
			const after = [...body.rows].find(other => Number(other.dataset.id) > server.id);
			body.insertBefore(row, after ?? null);
			return row;
		};
		const show = server => { announce(server); fill(rowOf(server.id) ?? make(server), server); empty(); };
		const gone = id => { rowOf(id)?.remove(); states.delete(id); empty(); };
		listen(table.dataset.live, {
			list: ({ servers }) => {
				const now = new Set(servers.map(server => server.id));
				for (const row of [...body.rows]) if (!now.has(Number(row.dataset.id))) gone(Number(row.dataset.id));
				servers.forEach(show);
			},
			server: show,
			gone: ({ id }) => gone(id),
		});
	}

	const one = $("server");
	if (one) {
		const log = $("log"), note = $("log-note"), events = $("events"), most = Number(log.dataset.most);
		log.scrollTop = log.scrollHeight;
		const write = words => {
			const line = document.createElement("span");
			line.textContent = `${words}\n`;
			log.append(line);
		};
		const history = async () => {
			const old = $("history");
			const answer = await fetch(old.dataset.path).catch(() => null);
			if (!answer?.ok) return;
			// This is a page of this server's own, with all text escaped.
			const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("history");
			if (!fresh) return;
			for (const details of old.querySelectorAll("details[open]")) fresh.querySelector(`#${details.id}`)?.setAttribute("open", "");
			if (!old.contains(document.activeElement)) old.replaceWith(document.adoptNode(fresh));
		};
		setInterval(history, 60000);
		listen(one.dataset.live, {
			server: server => { fill(one, server); if (announce(server)) history(); },
			gone: (_, source) => {
				source.close();
				say("This server is gone.");
				for (const form of one.querySelectorAll("form")) form.hidden = true;
			},
			event: event => {
				const item = events.querySelector(`li[data-id="${CSS.escape(event.id)}"]`) ?? $("event").content.firstElementChild.cloneNode(true);
				item.dataset.id = event.id;
				item.dataset.kind = event.kind;
				item.querySelector("time").dateTime = event.machine;
				for (const part of item.querySelectorAll("[data-f]")) part.textContent = event[part.dataset.f];
				events.prepend(item);
				while (events.children.length > 50) events.lastElementChild.remove();
				$("no-events").hidden = true;
			},
			log: ({ fresh, lines, lost, note: words }) => {
				const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
				if (fresh) log.replaceChildren();
				if (lost) write(`… ${lost} lines came too fast and are left out …`);
				(lines ?? []).forEach(write);
				while (log.children.length > most) log.firstElementChild.remove();
				note.textContent = words ?? "";
				note.hidden = !words;
				if (atEnd) log.scrollTop = log.scrollHeight;
			},
		});
	}

	// A question before what can't be taken back.
	const dialog = $("confirm");
	document.addEventListener("submit", event => {
		const form = event.target;
		const question = form.dataset.confirm;
		if (!question || !dialog?.showModal) return;
		event.preventDefault();
		$("confirm-text").textContent = question;
		dialog.showModal();
		dialog.onclick = click => {
			if (click.target.value === "yes") form.submit();
			if (click.target.value) dialog.close();
		};
	});
})();
