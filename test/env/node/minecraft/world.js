// A Minecraft Java server of the npm package flying-squid with a flat world, for a container:
// world.js DIRECTORY keeps the world there. It lets everybody in by any name.
'use strict'
const fs = require('node:fs')
const squid = require('flying-squid')

const worldFolder = process.argv[2]
fs.mkdirSync(worldFolder, { recursive: true })
const server = squid.createMCServer({
  host: '0.0.0.0',
  port: 25565,
  version: '1.16.5',
  motd: 'A world',
  'max-players': 7,
  'online-mode': false,
  logging: false,
  gameMode: 1,
  difficulty: 0,
  worldFolder,
  generation: { name: 'superflat', options: { worldHeight: 80 } },
  kickTimeout: 10000,
  plugins: {},
  modpe: false,
  'view-distance': 2,
  'player-list-text': { header: { text: '' }, footer: { text: '' } },
  'everybody-op': false,
  'max-entities': 10,
  // While the package loads its parts it sends away who joins, so it isn't up before that.
  beforePing: (response, client, answer) => { if (server.pluginsReady) answer(null, response) }
})
// The package may forget what changes while it saves: its own saving is off, and the part of the world
// that players of tests dig in is saved each second, and at the end.
let saving = Promise.resolve()
const save = () => {
  saving = saving.then(async () => {
    const columns = server.overworld.getColumns().filter((c) => Number(c.chunkX) === 0 && Number(c.chunkZ) === 0)
    for (const c of columns) await server.overworld.storageProvider.save(0, 0, c.column)
  })
  return saving
}
let ready = false
const end = async () => {
  if (ready) await save()
  process.exit(0)
}
// Of all who want to hear of the end, this alone may exit.
const hearAlone = () => {
  process.removeAllListeners('SIGTERM')
  process.on('SIGTERM', end)
}
server.once('pluginsReady', () => {
  ready = true
  clearInterval(server.overworld.savingInt)
  setInterval(() => { hearAlone(); save() }, 1000)
})
hearAlone()
